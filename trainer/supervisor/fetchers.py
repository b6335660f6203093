"""Processes that fetch what is large.

TLS hands Python 16 KiB at a time, each under the interpreter's lock, so the threads of one process
decrypt some 0.5 GB/s together and get slower the more they are. Processes share no lock.
"""

import asyncio
import multiprocessing
import os
import signal
import threading
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from functools import cache

from trainer.supervisor.blocks import Blocks, Part, receive
from trainer.supervisor.refusals import BlobUnavailable


class Fetchers:
    """As many as there are cores, started when they are first needed."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    async def receive(self, part: Part) -> tuple[int, int]:
        """As `blocks.receive`. BlobUnavailable also where a process was killed: others come."""
        pool = self._pool = self._pool or _started()
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, _receive, part)
        except BrokenExecutor as e:
            if self._pool is pool:
                self._pool = None
                pool.shutdown(wait=False)
            raise BlobUnavailable(f"a process that fetched {part.path.name} was killed") from e

    def close(self) -> None:
        """Let them end with what they are at."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _started() -> ProcessPoolExecutor:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return ProcessPoolExecutor(_count(), mp_context=context, initializer=_begin)


def _count() -> int:
    """One connection to Blob carries some 60 MB/s, so a few more than a small machine has cores."""
    return min(max(os.cpu_count() or 1, 4), 32)


def _begin() -> None:
    """Leave signals to the supervisor, and end with it however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _receive(part: Part) -> tuple[int, int]:
    return receive(_blocks(), part)


@cache
def _blocks() -> Blocks:
    return Blocks(threads=1)
