"""Who wants the same at a time shares it, and nobody's fault becomes another's."""

import asyncio
from collections.abc import Sequence

import pytest
from sqlalchemy.exc import OperationalError

from service.db.core.batching import MAX_BATCH, MAX_TRANSACTIONS, Batcher


class Killed(BaseException):
    """The end of the process."""


class Work:
    """Doubles numbers; refuses 13, and all that come with it."""

    def __init__(self) -> None:
        self.crowds: list[int] = []
        self.under_way = self.most = 0

    async def __call__(self, numbers: Sequence[int]) -> list[int | Exception]:
        self.crowds.append(len(numbers))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        if 13 in numbers:
            raise ValueError("13")
        return [LookupError("7") if n == 7 else 2 * n for n in numbers]


async def test_one_alone_is_served_at_once() -> None:
    work = Work()

    assert await Batcher(work).do(4) == 8
    assert work.crowds == [1]


async def test_a_batch_is_shared_and_each_gets_its_own_answer() -> None:
    work = Work()
    together = Batcher(work)
    numbers = range(100, 100 + 3 * MAX_BATCH)

    answers = await asyncio.gather(*(together.do(n) for n in numbers))

    assert answers == [2 * n for n in numbers]
    assert len(work.crowds) == 3
    assert work.most <= MAX_TRANSACTIONS


async def test_the_fault_of_one_is_not_that_of_the_others() -> None:
    together = Batcher(Work())

    answers = await asyncio.gather(
        *(together.do(n) for n in (6, 7, 13, 14)), return_exceptions=True
    )

    assert [type(a) for a in answers] == [int, LookupError, ValueError, int]


GONE = OperationalError("select", None, Exception(), connection_invalidated=True)
NEVER_CONNECTED = OperationalError(None, None, Exception())


@pytest.mark.parametrize("end", [GONE, NEVER_CONNECTED, Killed()])
async def test_where_the_database_ends_nobody_waits_for_ever(end: BaseException) -> None:
    attempts = 0

    async def fails(_: Sequence[int]) -> list[int]:
        nonlocal attempts
        attempts += 1
        raise end

    together = Batcher(fails)
    answers = await asyncio.gather(*(together.do(n) for n in range(3)), return_exceptions=True)

    assert [type(a) for a in answers] == [type(end)] * 3
    assert attempts == 1


async def test_who_asks_again_in_the_instant_in_which_the_others_end_is_served() -> None:
    together = Batcher(Work(), key=lambda _: "one at a time")

    async def twice() -> int:
        await together.do(1)
        return await together.do(2)

    async with asyncio.timeout(60):
        answers = await asyncio.gather(
            twice(), *(together.do(n) for n in range(3, 2 + MAX_TRANSACTIONS))
        )

    assert answers[0] == 4


async def test_two_of_one_key_are_never_in_one_batch() -> None:
    work = Work()
    together = Batcher(work, key=lambda n: n % 10)

    answers = await asyncio.gather(*(together.do(n) for n in (20, 21, 22, 31, 32)))

    assert answers == [40, 42, 44, 62, 64]
    assert sorted(work.crowds) == [2, 3]


async def test_after_a_batch_the_next_one_is_waited_for_a_moment() -> None:
    work = Work()
    together = Batcher(work)
    await asyncio.gather(*(together.do(n) for n in (1, 2, 3)))

    first = asyncio.create_task(together.do(4))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert [await together.do(5), await first] == [10, 8]
    assert work.crowds == [3, 2]


class Deadlock(Exception):
    sqlstate = "40P01"


async def test_who_has_time_waits_for_others_until_they_are_enough() -> None:
    work = Work()
    together = Batcher(work, pause=3600.0, full_size=5)
    await asyncio.gather(*(together.do(n) for n in (1, 2)))

    await asyncio.wait_for(asyncio.gather(*(together.do(n) for n in range(30, 35))), 10)

    assert work.crowds[-1] == 5


@pytest.mark.parametrize("met", [Deadlock("deadlock detected"), Exception("too many values")])
async def test_a_batch_whose_statement_failed_is_done_one_by_one(met: Exception) -> None:
    crowds: list[int] = []

    async def work(numbers: Sequence[int]) -> list[int | Exception]:
        crowds.append(len(numbers))
        if len(numbers) > 1:
            raise OperationalError("update", {}, met)
        return list(numbers)

    together = Batcher(work)

    assert await asyncio.gather(*(together.do(n) for n in (1, 2, 3))) == [1, 2, 3]
    assert sorted(crowds) == [1, 1, 1, 3]
