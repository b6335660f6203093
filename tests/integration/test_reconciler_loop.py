"""The loop of a reconciler: nothing waits for what is slow, nothing that is taken is dropped."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from service.db.engine import driver_url
from service.db.notices import Listener
from service.reconciler.loop import AT_ONCE, Loop, Step
from tests import waiting


@asynccontextmanager
async def running(url: str, steps: list[Step]) -> AsyncIterator[asyncio.Event]:
    """A loop that takes these steps; yields its stop."""
    stop, listener = asyncio.Event(), Listener(driver_url(url))

    async def claim(limit: int) -> list[Step]:
        taken, steps[:limit] = steps[:limit], []
        return taken

    loop = asyncio.create_task(Loop(listener=listener, stop=stop).whenever_due("test", claim))
    try:
        yield stop
    finally:
        stop.set()
        await loop


@pytest.fixture
def done() -> list[int]:
    return []


async def test_a_step_that_hangs_holds_up_nothing_else(database_url: str, done: list[int]) -> None:
    gate = asyncio.Event()

    async def hang() -> None:
        await gate.wait()
        done.append(-1)

    async def quick() -> None:
        done.append(len(done))

    async with running(database_url, [hang, *[quick] * (3 * AT_ONCE)]) as stop:
        await waiting.until(_length(done), lambda n: n == 3 * AT_ONCE)
        stop.set()
        gate.set()

    assert done[-1] == -1  # it was finished before the loop ended


async def test_no_more_than_a_batch_is_under_way_at_a_time(
    database_url: str, done: list[int]
) -> None:
    under_way, most = 0, 0

    async def step() -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        done.append(1)

    async with running(database_url, [step] * (5 * AT_ONCE)):
        await waiting.until(_length(done), lambda n: n == 5 * AT_ONCE)

    assert most <= AT_ONCE


async def test_a_step_that_breaks_ends_neither_the_others_nor_the_loop(
    database_url: str, done: list[int]
) -> None:
    async def broken() -> None:
        raise RuntimeError("a bug")

    async def quick() -> None:
        done.append(1)

    async with running(database_url, [broken, quick, broken, quick]):
        await waiting.until(_length(done), lambda n: n == 2)


def _length(done: list[int]) -> Callable[[], Awaitable[int]]:
    async def look() -> int:
        return len(done)

    return look
