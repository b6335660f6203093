"""Many who want the same kind of thing at a time share one transaction for it.

Alone, each is served at once, as if by itself; what comes while a transaction is under way
shares the next one. Only after a crowd the next one waits a moment: where many come, more will.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from service.db.core.db_errors import is_away

log = logging.getLogger(__name__)
T = TypeVar("T")
R = TypeVar("R")
_Asked = tuple[T, asyncio.Future[R]]
MOST = 250  # in one transaction
AT_ONCE = 2  # transactions: while one waits for the disk the next one is made ready
BREATH_SECONDS = 0.02  # from a crowd to the next: else the busier the service, the smaller they are


class Batcher(Generic[T, R]):
    """Does one kind of work for many at a time; two of one ``key`` never in one crowd.

    Else a worker that lost its lease could be told that its write was done, which was another's.
    """

    def __init__(
        self,
        work: Callable[[Sequence[T]], Awaitable[Sequence[R | Exception]]],
        key: Callable[[T], Hashable] = id,
        *,
        breath: float = BREATH_SECONDS,
        enough: int = MOST,
    ) -> None:
        """``breath``: seconds from a crowd to the next; not if so many as ``enough`` wait."""
        self._work, self._key, self._breath, self._enough = work, key, breath, enough
        self._many = asyncio.Event()
        self._waiting: deque[_Asked[T, R]] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._next_at = 0.0  # by the event loop's clock

    async def do(self, item: T) -> R:
        """The work's answer for ``item``; one that is an exception is raised.

        Where a crowd fails each is done by itself, so that the fault stays with whose it is; where
        the database is away all fail. So what is done must be harmless when it is done again.
        """
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if len(self._waiting) >= self._enough:
            self._many.set()
        # Not how many there are: one that has just ended is still there, and serves nobody.
        if sum(not task.done() for task in self._under_way) < AT_ONCE:
            task = asyncio.create_task(self._run())
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        return await answer

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        while self._waiting:
            if (early := self._next_at - clock()) > 0 and not self._many.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(early):
                        await self._many.wait()
                continue  # another transaction may have taken them all
            crowd = self._crowd()
            if len(crowd) > 1:
                self._next_at = clock() + self._breath
            await self._serve(crowd)

    def _crowd(self) -> list[_Asked[T, R]]:
        crowd: dict[Hashable, _Asked[T, R]] = {}
        while self._waiting and len(crowd) < MOST:
            key = self._key(self._waiting[0][0])
            if key in crowd:
                break
            crowd[key] = self._waiting.popleft()
        if len(self._waiting) < self._enough:
            self._many.clear()
        return list(crowd.values())

    async def _serve(self, taken: Sequence[_Asked[T, R]]) -> None:
        try:
            answers = await self._work([item for item, _ in taken])
        except Exception as fault:  # noqa: BLE001 - it is raised where each waits
            if len(taken) == 1 or is_away(fault):
                _fail(taken, fault)
                return
            log.warning("together.failed", extra={"count": len(taken), "cause": str(fault)})
            for one in taken:
                await self._serve([one])
        except BaseException as end:  # this process ends, and whoever waits with it
            _fail(taken, end)
            raise
        else:
            for (_, answer), value in zip(taken, answers, strict=True):
                _settle(answer, value)


def _settle(answer: asyncio.Future[R], value: R | Exception) -> None:
    if answer.done():  # nobody waits any more
        return
    if isinstance(value, Exception):
        answer.set_exception(value)
    else:
        answer.set_result(value)


def _fail(taken: Sequence[_Asked[T, R]], fault: BaseException) -> None:
    for _, answer in taken:
        if answer.done():
            continue
        if isinstance(fault, asyncio.CancelledError):
            answer.cancel()
        else:
            answer.set_exception(fault)
