"""Processes that fetch large files.

TLS hands Python 16 KiB at a time under the interpreter lock, so the threads of one process decrypt
about 0.5 GB/s together, and less the more they are. Processes share no lock.
"""

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from functools import cache

from trainer.supervisor.blob.blocks import BlobRange, BlockClient, receive_range
from trainer.supervisor.blob.errors import BlobUnavailableError

# Seconds for one block; each MiB of it has its own time-out, so none is this slow
BLOCK_TIMEOUT_SECONDS = 600.0


class FetchProcessError(Exception):
    """This machine has no resources for fetch processes now; use threads."""


def start_pool() -> ProcessPoolExecutor:
    """Start a pool of processes, each created when it is needed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return ProcessPoolExecutor(_count(), mp_context=context, initializer=_initialize)


class FetchProcesses:
    """The fetch processes of one supervisor; killed ones are replaced."""

    def __init__(
        self,
        start: Callable[[], ProcessPoolExecutor] = start_pool,
        patience: float = BLOCK_TIMEOUT_SECONDS,
    ) -> None:
        self._start, self._patience = start, patience
        self._pool: ProcessPoolExecutor | None = None
        self._slots = asyncio.Semaphore(_count())

    async def receive(self, blob_range: BlobRange) -> tuple[int, int]:
        """Receive a range as `blocks.receive_range` does.

        Raises BlobUnavailableError where a process was killed or hangs, FetchProcessError where
        none can start.
        """
        async with self._slots:
            pool, future = self._submit(blob_range)
            work = asyncio.wrap_future(future)
            work.add_done_callback(_ignore_result)
            try:
                async with asyncio.timeout(self._patience):
                    # Abandoned work continues: cancelling it may make Python 3.11 lose other work.
                    return await asyncio.shield(work)
            except (BrokenExecutor, TimeoutError) as e:
                self._drop(pool)
                raise BlobUnavailableError(
                    f"a process that fetched {blob_range.path.name} is gone"
                ) from e

    def close(self) -> None:
        """Let the processes end after their current work."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def _submit(self, blob_range: BlobRange) -> tuple[ProcessPoolExecutor, Future[tuple[int, int]]]:
        try:
            self._pool = self._pool or self._start()
            return self._pool, self._pool.submit(_receive, blob_range)
        except BrokenExecutor as e:
            self._drop(self._pool)
            raise BlobUnavailableError("the processes that fetch are gone") from e
        except (OSError, EOFError) as e:  # no memory, no semaphore: those are files in memory
            self._drop(self._pool)
            raise FetchProcessError(str(e)) from e

    def _drop(self, pool: ProcessPoolExecutor | None) -> None:
        """Kill the pool's processes, unless the pool was replaced already."""
        if pool is not None and pool is self._pool:
            pool.shutdown(wait=False)
            self._pool = None
            for process in multiprocessing.active_children():
                process.kill()


def _ignore_result(work: "asyncio.Future[tuple[int, int]]") -> None:
    """Retrieve the exception of abandoned work, so that asyncio does not log it."""
    if not work.cancelled():
        work.exception()


def _count() -> int:
    """Return the number of processes; one connection to Blob carries about 60 MB/s."""
    return min(max(os.cpu_count() or 1, 4), 32)


def _initialize() -> None:
    """Ignore SIGINT, and end with the supervisor however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _receive(blob_range: BlobRange) -> tuple[int, int]:
    return receive_range(_blocks(), blob_range)


@cache
def _blocks() -> BlockClient:
    return BlockClient(threads=1)
