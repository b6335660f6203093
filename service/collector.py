"""Python's garbage collector, in bites: while it looks, every heartbeat under way waits.

It looks for cycles among the objects made since it last came, living ones included, and comes by
itself after so many more were made than went. Where thousands of long polls end while as many begin
that takes minutes, and then all that they hold is looked through in one stop: 800,000 objects and
0.8 s at 10,000 nodes. So it comes often here, and finds little each time.
"""

import asyncio
import gc
from contextlib import suppress

_EVERY = 0.5  # s
# By itself: after so many new objects, rounds of those, rounds of these; Python's own are 700, 10
# and 10. Requests give back what they took without it. The second is an hour of rounds: what has
# lived through one seldom ends in a cycle, and to look at it again is the stop described above.
_BY_ITSELF = (20_000, 7_200, 20)


async def in_bites(stop: asyncio.Event) -> None:
    """Until ``stop``. What is there when it begins is never looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_BY_ITSELF)
    while not stop.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(_EVERY):
                await stop.wait()
        gc.collect(0)
