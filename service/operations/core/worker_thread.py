"""Run checks whose cost grows with the user's input in one thread, outside the event loop.

Several threads would compete with the loop, and heartbeats would wait for each of them.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
LARGE_BYTES = 64 * 1024  # bytes; checking this many takes a few milliseconds
_EXECUTOR = ThreadPoolExecutor(max_workers=1, thread_name_prefix="worker")


async def run_in_worker(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return the result of ``work`` without blocking the event loop."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_EXECUTOR, lambda: work(*args, **kwargs))
