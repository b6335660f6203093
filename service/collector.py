"""Run Python's garbage collector in short runs: while it runs, every heartbeat waits.

By default the collector runs after a number of new objects and looks for cycles among them. With
thousands of long polls that begin and end, minutes pass between two runs. Then one run stops the
process to look through all of their objects: 800,000 objects and 0.8 s at 10,000 nodes. So this
module runs the collector often, and each run finds little.
"""

import asyncio
import gc
from contextlib import suppress
from itertools import count

from service.instruments import EVENT_LOOP_LAG

_EVERY = 0.5  # seconds
_ROUNDS = 7_200  # an hour; then one run covers older objects, too: the stop described above
# Thresholds of automatic runs: after so many new objects, over the youngest only. Python's defaults
# are 700, 10 and 10. Requests free their objects without the collector.
_BY_ITSELF = (20_000, 1_000_000, 1_000_000)


async def in_bites(stop: asyncio.Event, every: float = _EVERY, rounds: int = _ROUNDS) -> None:
    """Collect garbage in short runs until ``stop``; never examine objects from before again.

    ``every``: seconds between runs over new objects. Each ``rounds``-th run covers older ones, too.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_BY_ITSELF)
    clock = asyncio.get_running_loop().time
    for number in count(1):
        began = clock()
        with suppress(TimeoutError):
            async with asyncio.timeout(every):
                await stop.wait()
        if stop.is_set():
            return
        EVENT_LOOP_LAG.observe(value=clock() - began - every)
        gc.collect(0 if number % rounds else 2)
