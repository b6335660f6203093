"""No job's bill passes its cap, whatever the cloud does to it."""

import json
import random
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from service.db.core.engine import driver_url
from tests.integration.money.budget_lives import Hostile, MovingPrices
from tests.integration.money.controlled_clouds import ControlledCloud, ControlledFake, emulated
from tests.world import PRICE, World


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[AsyncEngine]:
    """Yield an engine whose connections stay open between rounds of 50 steps."""
    small_engine = create_async_engine(driver_url(database_url), pool_size=10, max_overflow=0)
    yield small_engine
    await small_engine.dispose()


@pytest.fixture(params=["fake", "emulator"])
async def cloud(
    request: pytest.FixtureRequest, world: World, tmp_path: Path
) -> AsyncIterator[ControlledCloud]:
    """Yield a cloud of either kind, in which the service has its machines."""
    if request.param == "fake":
        yield ControlledFake(world.cloud)
        return
    async with emulated(tmp_path / "azure", world.clock) as controlled:
        world.attempts = replace(world.attempts, cloud=controlled.cloud)
        yield controlled


async def live_jobs(
    world: World, cloud: ControlledCloud, seed: int, many: int, hours: float
) -> Hostile:
    """So many jobs after so long a time."""
    prices = MovingPrices(PRICE)
    world.jobs = replace(world.jobs, prices=prices)
    hostile = Hostile(world=world, draw=random.Random(seed), prices=prices, cloud=cloud)
    await hostile.submit(many)
    await hostile.live(hours)
    return hostile


def worst_share(hostile: Hostile) -> float:
    """Return the largest share of its cap that any job has cost."""
    return max(float(life.bill / life.cap) for life in hostile.lives.values())


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(8))
async def test_of_200_jobs_none_costs_more_than_its_budget(
    world: World, cloud: ControlledCloud, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = await live_jobs(world, cloud, seed=seed, many=25, hours=10)
    states, reported = await hostile.over(), await hostile.count_reported()
    outcome = {
        "cloud": type(cloud).__name__,
        "seed": seed,
        "lives": len(hostile.lives),
        "worst_share": round(worst_share(hostile), 4),
        "passed": sum(life.bill > life.cap for life in hostile.lives.values()),
        "told": reported,
        "states": states,
        "evicted": hostile.evicted,
        "outages": hostile.outages,
    }
    with capsys.disabled():
        sys.stdout.write(f"\n{json.dumps(outcome)}\n")

    assert worst_share(hostile) <= 1
    assert reported["exhausted"] > 0, "no budget was put to the test"
