"""Many who want the same kind of thing at a time share one transaction for it.

Alone, each is served at once, as if by itself; what comes while a transaction is under way
shares the next one. So nobody waits for a crowd to gather, and a crowd costs little.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from sqlalchemy.exc import OperationalError

log = logging.getLogger(__name__)
T = TypeVar("T")
R = TypeVar("R")
_Asked = tuple[T, asyncio.Future[R]]
MOST = 250  # in one transaction
AT_ONCE = 2  # transactions: while one waits for the disk the next one is made ready


class Together(Generic[T, R]):
    """Does one kind of work for many at a time."""

    def __init__(self, work: Callable[[Sequence[T]], Awaitable[Sequence[R | Exception]]]) -> None:
        self._work = work
        self._waiting: deque[_Asked[T, R]] = deque()
        self._under_way: set[asyncio.Task[None]] = set()

    async def do(self, item: T) -> R:
        """The work's answer for ``item``; one that is an exception is raised.

        Where a crowd fails each is done by itself, so that the fault stays with whose it is; where
        the database is away all fail. So what is done must be harmless when it is done again.
        """
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if len(self._under_way) < AT_ONCE:
            task = asyncio.create_task(self._run())
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        return await answer

    async def _run(self) -> None:
        while self._waiting:
            count = min(len(self._waiting), MOST)
            await self._serve([self._waiting.popleft() for _ in range(count)])

    async def _serve(self, taken: Sequence[_Asked[T, R]]) -> None:
        try:
            answers = await self._work([item for item, _ in taken])
        except Exception as fault:  # noqa: BLE001 - it is raised where each waits
            if len(taken) == 1 or isinstance(fault, OperationalError):
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
