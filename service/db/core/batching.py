"""Batch concurrent database work into shared transactions.

A lone request is served at once. Requests that arrive while a transaction runs share the next one.
After a batch of several, the next transaction waits a moment for more requests.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from service.db.core.db_errors import is_unavailable

log = logging.getLogger(__name__)
T = TypeVar("T")
R = TypeVar("R")
_Pending = tuple[T, asyncio.Future[R]]
MAX_BATCH = 250  # items in one transaction
MAX_TRANSACTIONS = 2  # transactions: while one waits for the disk the next is prepared
PAUSE_SECONDS = 0.02  # pause after a batch: else a busy service makes small batches


class Batcher(Generic[T, R]):
    """Does one kind of work in batches; two items with the same ``key`` never share a batch.

    Else a worker that lost its lease could mistake another worker's write for its own.
    """

    def __init__(
        self,
        work: Callable[[Sequence[T]], Awaitable[Sequence[R | Exception]]],
        key: Callable[[T], Hashable] = id,
        *,
        pause: float = PAUSE_SECONDS,
        full_size: int = MAX_BATCH,
    ) -> None:
        """Pause ``pause`` seconds after a batch, unless ``full_size`` items wait."""
        self._work, self._key, self._pause, self._full_size = work, key, pause, full_size
        self._is_full = asyncio.Event()
        self._waiting: deque[_Pending[T, R]] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._next_at = 0.0  # by the event loop's clock

    async def do(self, item: T) -> R:
        """Do ``item`` in a batch; return its result, or raise it if it is an exception.

        If a batch fails, each item is retried alone, so that a faulty item fails only itself. If
        the database is away, all items fail. So the work must be safe to repeat.
        """
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if len(self._waiting) >= self._full_size:
            self._is_full.set()
        # Not the size of the set: a task that has just ended is still in it, and takes no items.
        if sum(not task.done() for task in self._under_way) < MAX_TRANSACTIONS:
            task = asyncio.create_task(self._run())
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        return await answer

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        while self._waiting:
            if (early := self._next_at - clock()) > 0 and not self._is_full.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(early):
                        await self._is_full.wait()
                continue  # another task may have taken all items
            batch = self._batch()
            if len(batch) > 1:
                self._next_at = clock() + self._pause
            await self._serve(batch)

    def _batch(self) -> list[_Pending[T, R]]:
        batch: dict[Hashable, _Pending[T, R]] = {}
        while self._waiting and len(batch) < MAX_BATCH:
            key = self._key(self._waiting[0][0])
            if key in batch:
                break
            batch[key] = self._waiting.popleft()
        if len(self._waiting) < self._full_size:
            self._is_full.clear()
        return list(batch.values())

    async def _serve(self, batch: Sequence[_Pending[T, R]]) -> None:
        try:
            answers = await self._work([item for item, _ in batch])
        except Exception as fault:  # noqa: BLE001 - raised in each caller
            if len(batch) == 1 or is_unavailable(fault):
                _fail(batch, fault)
                return
            log.warning("together.failed", extra={"count": len(batch), "cause": str(fault)})
            for call in batch:
                await self._serve([call])
        except BaseException as end:  # the process ends: fail the callers too
            _fail(batch, end)
            raise
        else:
            for (_, answer), value in zip(batch, answers, strict=True):
                _set_outcome(answer, value)


def _set_outcome(answer: asyncio.Future[R], value: R | Exception) -> None:
    if answer.done():  # the caller was cancelled
        return
    if isinstance(value, Exception):
        answer.set_exception(value)
    else:
        answer.set_result(value)


def _fail(batch: Sequence[_Pending[T, R]], fault: BaseException) -> None:
    for _, answer in batch:
        if answer.done():
            continue
        if isinstance(fault, asyncio.CancelledError):
            answer.cancel()
        else:
            answer.set_exception(fault)
