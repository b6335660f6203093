"""Python's collector in a process of the service."""

import asyncio
import gc
from collections.abc import Iterator

import pytest

from service import collector
from tests.waiting import until


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """The tests' own process is none of the service."""
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


async def test_what_a_process_begins_with_is_never_looked_through_again() -> None:
    stop = asyncio.Event()
    stop.set()

    await collector.in_bites(stop)

    assert len(gc.get_objects()) < gc.get_freeze_count() / 100
    assert gc.get_threshold() > (10_000, 7_200, 7_200), "nor does a burst make it look at all"


async def test_what_came_and_stays_is_looked_through_within_moments() -> None:
    """Else thousands of long polls would be looked through at once, minutes later."""
    stop = asyncio.Event()
    looking = asyncio.create_task(collector.in_bites(stop))
    await asyncio.sleep(0)
    stay = [[n] for n in range(5_000)]  # far from what makes it come by itself

    await until(_young, {id(one) for one in stay}.isdisjoint, deadline=10)

    stop.set()
    await looking


class Cycle:
    """Only the collector finds it, and then it says so."""

    def __init__(self) -> None:
        self.itself, self.gone = self, asyncio.Event()

    def __del__(self) -> None:
        self.gone.set()


async def test_a_cycle_that_nobody_holds_goes_within_moments() -> None:
    stop = asyncio.Event()
    looking = asyncio.create_task(collector.in_bites(stop))
    await asyncio.sleep(0)

    gone = Cycle().gone
    async with asyncio.timeout(10):
        await gone.wait()

    stop.set()
    await looking


async def test_a_cycle_that_was_held_for_longer_goes_when_all_is_looked_at() -> None:
    """Those looks do not come by themselves: Python counts rounds that it began alone."""
    stop = asyncio.Event()
    looking = asyncio.create_task(collector.in_bites(stop, every=0.01, rounds=20))
    await asyncio.sleep(0)
    held = Cycle()
    await until(_young, {id(held)}.isdisjoint, interval=0.01, deadline=10)

    gone = held.gone
    del held
    async with asyncio.timeout(10):
        await gone.wait()

    stop.set()
    await looking


async def _young() -> set[int]:
    return {id(one) for one in gc.get_objects(generation=0)}
