"""Events and metrics of jobs that were over long ago are deleted; whatever else there is stays."""

import asyncio
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal

import pytest
from sqlalchemy import delete, func, select, true
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.jobs import events, step_metrics
from service.db.money import bills
from service.db.monitoring import event_pruning
from service.db.monitoring.event_pruning import PrunedTable
from service.db.schema import tables
from service.db.schema.market_tables import bills as bills_table
from service.db.schema.market_tables import spot_prices
from service.db.spot import market
from service.domain.money.billing_reconciliation import BilledDay
from service.domain.spot.capacity_traces import SpotPool
from service.domain.spot.market import PricePoint
from service.reconciler.sweeps.pruning import PAGE_SIZE, TIME_LIMIT, Pruning
from tests import waiting
from tests.clock import Clock
from tests.integration.db.rows import add_job, blocked
from tests.nodes.scripted_node import metrics as measured

KEEP = {PrunedTable.EVENTS: timedelta(days=30), PrunedTable.METRICS: timedelta(days=10)}
STEPS = 7


@pytest.fixture
def sweep(engine: AsyncEngine, clock: Clock) -> Pruning:
    return Pruning(engine=engine, retention_by_table=KEEP, now=clock)


async def count_left(engine: AsyncEngine) -> dict[str, tuple[int, int]]:
    """Events and metrics by job."""
    found = {}
    async with engine.connect() as conn:
        for job_id in ("live", "over"):
            counts = [
                (
                    await conn.execute(
                        select(func.count()).select_from(t).where(t.c.job_id == job_id)
                    )
                ).scalar_one()
                for t in (tables.events, tables.metrics)
            ]
            found[job_id] = (counts[0], counts[1])
    return found


async def test_two_concurrent_prunings_report_the_end_only_when_all_is_deleted(
    engine: AsyncEngine, clock: Clock
) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock(), id="over", state="cancelled", finished_at=clock())
        for _ in range(STEPS):
            await events.add(conn, "over", clock(), "job.running", "it runs")

    async def prune() -> bool:
        async with engine.begin() as conn:
            return await event_pruning.delete_some(conn, PrunedTable.EVENTS, "over")

    async with engine.connect() as dies, dies.begin() as deleting:
        await dies.execute(delete(tables.events))
        second = asyncio.create_task(prune())
        await waiting.until(lambda: blocked(engine), bool)
        await deleting.rollback()
    second_result = await second

    async with engine.connect() as conn:
        remaining = (
            await conn.execute(select(func.count()).select_from(tables.events))
        ).scalar_one()
    assert second_result is (remaining == 0)


async def test_each_kind_is_kept_for_its_time_after_the_end_of_its_job(
    engine: AsyncEngine, clock: Clock, sweep: Pruning
) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock(), id="live", state="running")
        long_ago = clock() - timedelta(days=90)
        await add_job(conn, long_ago, id="over", state="cancelled", finished_at=clock())
        for job_id in ("live", "over"):
            await events.add(conn, job_id, clock(), "job.running", "it runs")
            await step_metrics.add(conn, job_id, 1, [measured(n) for n in range(STEPS)])
    counts = []
    for days in (9, 2, 20):
        clock.advance(seconds=timedelta(days=days).total_seconds())
        await sweep.run_once()
        counts.append((await count_left(engine))["over"])

    assert counts == [(1, STEPS), (1, 0), (0, 0)]
    assert (await count_left(engine))["live"] == (1, STEPS)
    assert await sweep.run_once() == 0  # what is done is not looked for again


async def test_prices_and_bills_are_kept_for_400_days(
    engine: AsyncEngine, clock: Clock, sweep: Pruning
) -> None:
    pool, holds = SpotPool("eastus", "size"), clock() - timedelta(days=900)
    counts = []
    async with engine.begin() as conn:
        await market.save_prices(conn, {pool: [PricePoint(holds, Decimal(8))]}, clock())
        await bills.save(conn, [bill(clock().date())], clock().date(), clock().date(), clock())
    for days in (399, 2):
        clock.advance(seconds=timedelta(days=days).total_seconds())
        await sweep.run_once()
        async with engine.connect() as conn:
            for table in (spot_prices, bills_table):
                count = await conn.execute(select(func.count()).select_from(table))
                counts.append(count.scalar_one())

    assert counts == [1, 1, 0, 0]


async def test_a_round_ends_in_time_however_much_is_due(
    engine: AsyncEngine, clock: Clock, sweep: Pruning
) -> None:
    async with engine.begin() as conn:
        await add_jobs(conn, clock, 3 * PAGE_SIZE)
    clock.advance(seconds=timedelta(days=31).total_seconds())
    slow_sweep = replace(sweep, now=lambda: clock.advance(seconds=TIME_LIMIT.total_seconds() / 3))

    rounds = [await slow_sweep.run_once() for _ in range(3)]

    assert max(rounds) == 2 * PAGE_SIZE  # a page of each kind
    assert sum(rounds) == 2 * 3 * PAGE_SIZE
    async with engine.begin() as conn:
        await add_jobs(conn, clock, 2 * PAGE_SIZE + 50, "more")
    clock.advance(seconds=timedelta(days=31).total_seconds())
    assert await sweep.run_once() == 2 * (2 * PAGE_SIZE + 50)  # with time, all in one round


async def add_jobs(conn: AsyncConnection, clock: Clock, count: int, name: str = "over") -> None:
    """Add jobs that were cancelled just now."""
    await add_job(conn, clock(), id=name, state="cancelled", finished_at=clock())
    names = [c.name for c in tables.jobs.c if c.computed is None and c.name != "id"]
    numbers = select(func.generate_series(1, count - 1).label("n")).subquery()
    ids = func.concat(f"{name}-", numbers.c.n)
    rows = select(ids, *(tables.jobs.c[column] for column in names)).select_from(
        tables.jobs.join(numbers, tables.jobs.c.id == name)
    )
    await conn.execute(tables.jobs.insert().from_select(["id", *names], rows))


def bill(day: date) -> BilledDay:
    price = Decimal(1)
    return BilledDay(day=day, attempt_id="att-1", category="Storage", quantity=price, amount=price)


async def test_a_job_with_many_rows_is_pruned_some_at_a_time(
    engine: AsyncEngine, clock: Clock
) -> None:
    count = event_pruning.ROWS + 3
    async with engine.begin() as conn:
        await add_job(conn, clock(), id="over", state="cancelled", finished_at=clock())
        await step_metrics.add(conn, "over", 1, [measured(n) for n in range(1)])
        steps = select(func.generate_series(1, count).label("step")).subquery()
        row = select(tables.metrics).where(tables.metrics.c.step == 0).subquery()
        columns = [steps.c.step if c.name == "step" else c for c in row.c]
        await conn.execute(
            tables.metrics.insert().from_select(
                [c.name for c in row.c], select(*columns).select_from(row.join(steps, true()))
            )
        )
        first = await event_pruning.delete_some(conn, PrunedTable.METRICS, "over")
        second = await event_pruning.delete_some(conn, PrunedTable.METRICS, "over")
        remaining = (
            await conn.execute(select(func.count()).select_from(tables.metrics))
        ).scalar_one()

    assert (first, second, remaining) == (False, True, 0)
