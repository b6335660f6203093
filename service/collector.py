"""Run Python's garbage collector in short runs: while it runs, every heartbeat waits.

By default the collector runs after a number of new objects and looks for cycles among them. With
thousands of long polls, minutes pass between two runs. Then one run pauses the process to examine
all of their objects: 800,000 objects and 0.8 s at 10,000 nodes. So this module runs the collector
often, and each run is short.
"""

import asyncio
import gc
from contextlib import suppress
from itertools import count

from service.instruments import EVENT_LOOP_LAG

_INTERVAL = 0.5  # seconds
_ROUNDS = 7_200  # an hour; then one run covers older objects, too: the pause described above
# Thresholds of automatic runs, in new objects, over the youngest generation only. Python's defaults
# are 700, 10 and 10. Requests free their objects without the collector.
_THRESHOLDS = (20_000, 1_000_000, 1_000_000)


async def run_in_steps(
    stop: asyncio.Event, every: float = _INTERVAL, rounds: int = _ROUNDS
) -> None:
    """Collect garbage in short runs until ``stop``; never examine earlier objects again.

    ``every``: seconds between runs over new objects. Each ``rounds``-th run covers older ones, too.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    clock = asyncio.get_running_loop().time
    for number in count(1):
        start = clock()
        with suppress(TimeoutError):
            async with asyncio.timeout(every):
                await stop.wait()
        if stop.is_set():
            return
        EVENT_LOOP_LAG.observe(value=clock() - start - every)
        gc.collect(0 if number % rounds else 2)
