"""Python's collector in a process of the service."""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from service import collector
from tests.waiting import until


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Restore the thresholds of the garbage collector after the test."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)  # and no unfreeze: conftest froze what was imported


@asynccontextmanager
async def looking(every: float = 0.05, rounds: int = 7_200) -> AsyncIterator[None]:
    """Run the service's garbage collection in steps during the block."""
    stop = asyncio.Event()
    task = asyncio.create_task(collector.run_in_steps(stop, every, rounds))
    await asyncio.sleep(0)
    try:
        yield
    finally:
        stop.set()
        await task


class Cycle:
    """Only the collector finds it, and then it says so."""

    def __init__(self) -> None:
        self.itself, self.gone = self, asyncio.Event()

    def __del__(self) -> None:
        self.gone.set()


async def test_what_a_process_begins_with_is_never_looked_through_again() -> None:
    async with looking():
        assert len(gc.get_objects()) < gc.get_freeze_count() / 100


async def test_a_burst_does_not_make_it_look_at_all_there_is() -> None:
    async with looking():
        newest, *older = gc.get_threshold()

        assert newest > 10_000
        assert min(older) > 10_000


async def test_what_came_and_stays_is_looked_through_once_within_moments() -> None:
    """Else thousands of long polls would be looked through at once, minutes later."""
    async with looking():
        stay = [[n] for n in range(5_000)]  # far from what makes it come by itself
        ids = {id(tracked) for tracked in stay}

        await until(_newest, ids.isdisjoint)

        assert ids <= {id(tracked) for tracked in gc.get_objects(generation=1)}


async def test_a_cycle_that_nobody_holds_goes_within_moments() -> None:
    async with looking():
        freed = Cycle().gone

        assert await asyncio.wait_for(freed.wait(), 10)


async def test_a_cycle_that_was_held_for_longer_goes_when_all_is_looked_at() -> None:
    """Those looks do not come by themselves: Python counts rounds that it began alone."""
    async with looking(every=0.01, rounds=20):
        cycle = Cycle()
        await until(_newest, {id(cycle)}.isdisjoint, interval=0.01)

        freed = cycle.gone
        del cycle

        assert await asyncio.wait_for(freed.wait(), 10)


async def _newest() -> set[int]:
    return {id(tracked) for tracked in gc.get_objects(generation=0)}
