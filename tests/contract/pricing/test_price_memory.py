"""Contract of PriceMemory: in a process, and in PostgreSQL."""

from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.spot import market as market_rows
from service.domain.cloud.fleet import Price
from service.domain.money.price_check import PriceDoubt
from service.domain.spot.capacity_traces import SpotPool, spot_pool_of
from service.domain.spot.market import PricePoint
from service.domain.states import CapacityType
from service.operations.money.price_memory import DatabaseMemory
from service.pricing.price_memory import PriceMemory, ProcessMemory
from tests.clock import Clock
from tests.integration.db.rows import add_attempt, add_job
from tests.price_list import PriceList, machine, price, reading, spot
from tests.world import SPOT

PLACE = spot_pool_of(SPOT)
METER, OTHER = f"{PLACE} spot", f"{PLACE} on_demand"


@pytest.fixture(params=["process", "database"])
def memory(request: pytest.FixtureRequest, clock: Clock) -> PriceMemory:
    if request.param == "process":
        return ProcessMemory()
    return DatabaseMemory(engine=request.getfixturevalue("engine"), now=clock)


def doubt(hourly: str, at: datetime) -> PriceDoubt:
    return PriceDoubt(price=Decimal(hourly), settles_at=at)


async def test_the_last_doubt_of_a_meter_is_stored_exactly(
    memory: PriceMemory, clock: Clock
) -> None:
    await memory.save_doubt(METER, doubt("8.4", clock()))
    await memory.save_doubt(METER, doubt("0.1000000000000000055", clock() + timedelta(days=1)))
    await memory.save_doubt(OTHER, doubt("1E+3", clock()))

    assert await memory.find_doubts([METER, "another"]) == {
        METER: doubt("0.1000000000000000055", clock() + timedelta(days=1))
    }


async def test_a_doubt_is_forgotten_alone(memory: PriceMemory, clock: Clock) -> None:
    for meter in (METER, OTHER):
        await memory.save_doubt(meter, doubt("8.4", clock()))
    await memory.remove_doubt(METER)
    await memory.remove_doubt("another")

    assert list(await memory.find_doubts([METER, OTHER])) == [OTHER]
    assert await memory.find_doubts([]) == {}


async def test_a_place_without_history_has_no_last_good_price(memory: PriceMemory) -> None:
    assert await memory.last_good_prices(SpotPool("northpole", "Standard_Abacus")) == {}


async def test_the_last_good_price_is_that_of_the_newest_machines_that_ran(
    engine: AsyncEngine, clock: Clock
) -> None:
    """Skip attempts that never trained, because their price was never paid."""
    ran = {"one": (8, 30), "two": (9, 31), "free": (0, 31), "idle": (1, 2)}
    async with engine.begin() as conn:
        for name, (hourly, listed) in ran.items():
            at = None if name == "idle" else clock()
            columns = {"id": name, "job_id": name, "hourly": hourly, "on_demand_hourly": listed}
            await add_job(conn, clock(), id=name)
            await add_attempt(conn, clock.advance(hours=1), ran_at=at, **columns)

    paid = await DatabaseMemory(engine=engine, now=clock).last_good_prices(PLACE)

    assert paid == {CapacityType.SPOT: Decimal(9), CapacityType.ON_DEMAND: Decimal(31)}


async def test_where_nothing_ran_the_last_good_price_of_spot_is_the_one_azure_published(
    engine: AsyncEngine, clock: Clock
) -> None:
    points = [PricePoint(clock() - timedelta(days=d), Decimal(p)) for d, p in ((9, 7), (2, 8))]
    free = PricePoint(clock() - timedelta(days=1), Decimal(0))
    async with engine.begin() as conn:
        await market_rows.save_prices(conn, {PLACE: [*points, free]}, clock())

    paid = await DatabaseMemory(engine=engine, now=clock).last_good_prices(PLACE)

    assert paid == {CapacityType.SPOT: Decimal(8)}


async def test_a_jump_settles_over_restarts_of_the_service(
    engine: AsyncEngine, clock: Clock, price_list: PriceList
) -> None:
    names = {"armSkuName": SPOT.vm_size, "armRegionName": SPOT.region}
    prices: list[Price | None] = []
    for hourly in (9, 1, 1, 1):
        price_list.will_only_say(machine(32, **names), spot(hourly, **names))
        service = reading(price_list.url, clock, DatabaseMemory(engine=engine, now=clock))
        prices.append((await service.prices([SPOT])).get(SPOT))
        await service.close()
        if len(prices) == 1:
            await _paid(engine, clock, prices[0])
        clock.advance(hours=12)

    assert prices == [price("9", "32")] * 3 + [price("1", "32")]


async def _paid(engine: AsyncEngine, clock: Clock, quoted: Price | None) -> None:
    assert quoted is not None
    prices = {"hourly": quoted.hourly, "on_demand_hourly": quoted.on_demand_hourly}
    async with engine.begin() as conn:
        await add_job(conn, clock())
        await add_attempt(conn, clock(), ran_at=clock(), **prices)
