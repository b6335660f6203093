"""What Azure tells of its Spot market is kept with its dates, and plans rest on it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.attempts import machine_history
from service.db.schema.market_tables import market_looks, spot_bands
from service.db.spot import market as rows
from service.domain.spot.capacity_traces import SpotPool, spot_pool_of
from service.domain.spot.market import EvictionBand, PlacementScore, PricePoint
from service.domain.states import CapacityType
from service.pricing.fake_market import FakeMarket
from service.pricing.market import MarketUnavailable
from service.reconciler.sweeps.market_watch import GRAPH, MarketWatch
from tests.clock import Clock
from tests.integration.db.rows import add_attempt, add_job
from tests.world import SPOT, World

PLACE = spot_pool_of(SPOT)


@pytest.fixture
def market() -> FakeMarket:
    point = PricePoint(datetime(2026, 11, 1, tzinfo=UTC), Decimal("8.44"))
    return FakeMarket(listed_bands={PLACE: EvictionBand.TO_10}, listed_prices={PLACE: [point]})


@pytest.fixture
def watch(engine: AsyncEngine, clock: Clock, market: FakeMarket) -> MarketWatch:
    return MarketWatch(engine=engine, market=market, pools=(PLACE,), now=clock)


async def count_kept(engine: AsyncEngine) -> list[tuple[str, timedelta]]:
    """Bands, oldest first, and for how long Azure was heard to say so."""
    c = spot_bands.c
    async with engine.connect() as conn:
        result = await conn.execute(select(c.band, c.seen_at - c.since).order_by(c.since))
        return [(row[0], row[1]) for row in result]


async def test_azure_is_asked_twice_a_day_and_every_change_stays_on_record(
    engine: AsyncEngine, clock: Clock, market: FakeMarket, watch: MarketWatch
) -> None:
    await watch.run_once()
    await watch.run_once()
    calls = market.calls
    clock.advance(hours=13)
    await watch.run_once()
    market.listed_bands = {PLACE: EvictionBand.ABOVE}
    clock.advance(hours=13)
    await watch.run_once()

    async with engine.connect() as conn:
        now = await rows.bands(conn, [PLACE, SpotPool("northpole", "size")])
        prices = await rows.prices(conn, [PLACE], clock(), clock())
    assert calls == 3  # bands, prices, scores
    assert await count_kept(engine) == [("5-10", timedelta(hours=13)), ("20+", timedelta(0))]
    assert {pool: band.band for pool, band in now.items()} == {PLACE: EvictionBand.ABOVE}
    assert [point.hourly for point in prices[PLACE]] == [Decimal("8.44")]


async def test_the_last_known_market_data_hold_while_azure_does_not_answer(
    engine: AsyncEngine, clock: Clock, market: FakeMarket, watch: MarketWatch
) -> None:
    await watch.run_once()
    clock.advance(hours=13)
    market.fail_next = [MarketUnavailable("429", retry_after=3600)]
    await watch.run_once()
    clock.advance(minutes=59)
    await watch.run_once()
    call_count = market.calls
    async with engine.connect() as conn:
        bands = await rows.bands(conn, [PLACE])
        query = select(market_looks.c.trouble).where(market_looks.c.what == GRAPH)
        trouble = (await conn.execute(query)).scalar_one()
    clock.advance(minutes=2)
    await watch.run_once()

    assert (call_count, market.calls) == (6, 8)
    assert bands[PLACE].band is EvictionBand.TO_10
    assert trouble == "429"


async def test_bands_are_kept_though_prices_fail_and_any_fault_is_noted(
    engine: AsyncEngine, clock: Clock, market: FakeMarket, watch: MarketWatch
) -> None:
    too_dear = PricePoint(clock(), Decimal(10) ** 12)  # more than the table holds
    market.listed_prices = {PLACE: [too_dear]}

    with pytest.raises(DBAPIError):
        await watch.run_once()

    async with engine.connect() as conn:
        bands = await rows.bands(conn, [PLACE])
        row = (await conn.execute(select(market_looks))).one()
    assert bands[PLACE].band is EvictionBand.TO_10
    assert (row.what, row.trouble_at) == (GRAPH, clock())
    assert "see the log" in row.trouble


async def test_prices_are_those_of_a_window_and_the_one_that_held_before_it(
    engine: AsyncEngine, clock: Clock
) -> None:
    price_points = [PricePoint(clock() - timedelta(days=n), Decimal(n) / 10) for n in (9, 7, 5, 3)]
    async with engine.begin() as conn:
        # One of them occurs twice.
        await rows.save_prices(conn, {PLACE: [price_points[0], *price_points]}, clock())
        since, until = (clock() - timedelta(days=n) for n in (6, 4))
        prices = await rows.prices(conn, [PLACE], since, until)
        later_prices = await rows.prices(conn, [PLACE], clock(), clock() + timedelta(days=1))

    assert prices == {PLACE: [(p.at, p.hourly) for p in price_points[1:3]]}
    assert [p.hourly for p in later_prices[PLACE]] == [Decimal("0.3")]


async def test_no_more_machines_are_scored_than_azure_takes(
    world: World, clock: Clock, market: FakeMarket, watch: MarketWatch
) -> None:
    async with world.engine.begin() as conn:
        await add_job(conn, clock())
        await add_attempt(conn, clock(), instance_count=4000)
    market.listed_scores = {PLACE: PlacementScore.HIGH}

    await watch.run_once()

    async with world.engine.connect() as conn:
        score = (await rows.scores(conn, [PLACE]))[PLACE]
    assert (market.requested_machines, score.machines) == (1000, 1000)


async def test_a_plan_says_what_its_evictions_rest_on(world: World, watch: MarketWatch) -> None:
    body = {"model": "rekindle/tiny-llama", "training_file": await world.upload(), "seed": 7}
    request = ("POST", "/v1/fine_tuning/jobs?dry_run=true")

    before = (await world.call(*request, json=body)).json()
    await watch.run_once()
    after = (await world.call(*request, json=body)).json()

    first, second = (job["plan"]["options"][0] for job in (before, after))
    assert "REKINDLE_HAZARD_PER_HOUR" in first["evictions_from"]
    assert first["node_evictions_per_hour"] == 0.05
    assert "Azure's eviction rate of 2026-11-20, 5 to 10 %" in second["evictions_from"]
    assert second["node_evictions_per_hour"] == 0.075
    assert second["expected_evictions"] > first["expected_evictions"]


async def test_a_choice_of_where_to_run_next_knows_the_newest_band(
    engine: AsyncEngine, clock: Clock, watch: MarketWatch
) -> None:
    on_demand = replace(SPOT, capacity_type=CapacityType.ON_DEMAND)
    await watch.run_once()

    async with engine.connect() as conn:
        history = await machine_history.capacity_history(conn, [SPOT, on_demand], 2, clock())

    assert history.bands == {SPOT: EvictionBand.TO_10.per_hour}


async def test_scores_are_asked_for_as_many_machines_as_jobs_want_and_date_from_their_change(
    world: World, clock: Clock, market: FakeMarket, watch: MarketWatch
) -> None:
    await world.submit()
    await world.tick(3)
    start = clock()
    market.listed_scores = {PLACE: PlacementScore.HIGH}
    values = []
    for score in (PlacementScore.HIGH, PlacementScore.HIGH, PlacementScore.LOW):
        market.listed_scores = {PLACE: score}
        clock.advance(minutes=21)
        await watch.run_once()
        async with world.engine.connect() as conn:
            spot_score = (await rows.scores(conn, [PLACE]))[PLACE]
        values.append(
            (spot_score.score, spot_score.machines, (spot_score.since - start).total_seconds() / 60)
        )
    market.listed_scores = {}
    clock.advance(minutes=21)
    await watch.run_once()

    assert values == [
        (PlacementScore.HIGH, 2, 21),
        (PlacementScore.HIGH, 2, 21),
        (PlacementScore.LOW, 2, 63),
    ]
    assert market.requested_machines == 2
    async with world.engine.connect() as conn:
        assert await rows.scores(conn, [PLACE]) == {}
