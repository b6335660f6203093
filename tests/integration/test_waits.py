"""What a job that Spot refuses tells of its end: later, less sure, and no dearer."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from service.domain.states import CapacityType
from tests.clock import Clock
from tests.world import PRICE, SPOT, World, open_world

ON_DEMAND = type(SPOT)(
    region=SPOT.region, vm_size=SPOT.vm_size, capacity_type=CapacityType.ON_DEMAND
)


@pytest.fixture
async def world(engine: AsyncEngine, database_url: str, clock: Clock) -> AsyncIterator[World]:
    """Machines of one size, on Spot and on demand."""
    table = {SPOT: PRICE, ON_DEMAND: PRICE}
    async with open_world(engine, database_url, clock, table) as made:
        yield made


async def refused(world: World, minutes: int, **infrastructure: Any) -> dict[str, Any]:  # noqa: ANN401
    """A job for which Spot has had no room for so long."""
    world.cloud.sold_out.add(SPOT)
    job = await world.submit(infrastructure={"nodes": 2} | infrastructure)
    await world.tick(6, seconds=20)
    world.clock.advance(minutes=minutes)
    await world.tick(2)
    return await world.job(job["id"])


def left(world: World, shown: dict[str, Any]) -> dict[str, float]:
    return {
        name: at - world.clock().timestamp() for name, at in shown["forecast"]["finish"].items()
    }


async def test_a_job_that_waits_is_done_later_the_longer_it_waits_and_costs_no_more(
    world: World,
) -> None:
    early = await world.submit()
    told = left(world, await world.job(early["id"]))
    young = await refused(world, minutes=4)
    soon = left(world, young)
    old = await refused(world, minutes=90)
    late = left(world, old)

    assert told["p50"] + 600 < soon["p50"] < late["p50"]
    assert late["p90"] - late["p10"] > soon["p90"] - soon["p10"]
    assert young["estimated_finish"] == young["forecast"]["finish"]["p50"]
    assert young["cost"]["forecast_total"] == early["cost"]["forecast_total"]


async def test_a_job_that_will_buy_on_demand_in_time_waits_no_longer_than_it_may(
    world: World,
) -> None:
    deadline = int((world.clock() + timedelta(hours=2)).timestamp())

    shown = await refused(world, minutes=3, deadline=deadline)

    assert shown["forecast"]["finish"]["p50"] <= deadline
    assert shown["forecast"]["meets_deadline"] >= 0.85
