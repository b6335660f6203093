"""Python's garbage collector in short runs: while it runs, every heartbeat waits.

By default it runs after a number of new objects and looks for cycles among them. Where thousands of
long polls end while as many begin, that takes minutes, and then it looks through everything that
they hold in one stop: 800,000 objects and 0.8 s at 10,000 nodes. So it runs often here, and finds
little each time.
"""

import asyncio
import gc
from contextlib import suppress
from itertools import count

from service.instruments import EVENT_LOOP_LAG

_EVERY = 0.5  # s
_ROUNDS = 7_200  # an hour; then also at what has lived through one before: the stop described above
# By itself: after so many new objects, and then at the newest only; Python's own are 700, 10 and
# 10. Requests give back what they took without it.
_BY_ITSELF = (20_000, 1_000_000, 1_000_000)


async def in_bites(stop: asyncio.Event, every: float = _EVERY, rounds: int = _ROUNDS) -> None:
    """Collect garbage in short runs until ``stop``; objects from before are never looked at again.

    ``every``: seconds between two runs over new objects. One of ``rounds`` covers all the rest too.
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
