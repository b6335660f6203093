"""Events and metrics of jobs that were over long ago are deleted; whatever else there is stays."""

from datetime import date, timedelta
from decimal import Decimal

import pytest
from sqlalchemy import func, select, true
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db import bills, events, market, metrics, pruning, tables
from service.db.market_tables import bills as bills_table
from service.db.market_tables import spot_prices
from service.db.pruning import Rows
from service.domain.market import PricePoint
from service.domain.reconciliation import Billed
from service.domain.traces import Place
from service.reconciler.pruning import Pruning
from tests.clock import Clock
from tests.integration.rows import add_job
from tests.scripted_node import metrics as measured

KEEP = {Rows.EVENTS: timedelta(days=30), Rows.METRICS: timedelta(days=10)}
STEPS = 7


@pytest.fixture
def sweep(engine: AsyncEngine, clock: Clock) -> Pruning:
    return Pruning(engine=engine, keep=KEEP, now=clock)


async def left(engine: AsyncEngine) -> dict[str, tuple[int, int]]:
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


async def test_each_kind_is_kept_for_its_time_after_the_end_of_its_job(
    engine: AsyncEngine, clock: Clock, sweep: Pruning
) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock(), id="live", state="running")
        await add_job(conn, clock(), id="over", state="cancelled", finished_at=clock())
        for job_id in ("live", "over"):
            await events.add(conn, job_id, clock(), "job.running", "it runs")
            await metrics.add(conn, job_id, 1, [measured(n) for n in range(STEPS)])
    seen = []
    for days in (9, 2, 20):
        clock.advance(seconds=timedelta(days=days).total_seconds())
        await sweep.run_once()
        seen.append((await left(engine))["over"])

    assert seen == [(1, STEPS), (1, 0), (0, 0)]
    assert (await left(engine))["live"] == (1, STEPS)
    assert await sweep.run_once() == 0  # what is done is not looked for again


async def test_what_azure_told_is_kept_for_a_year_after_it_told_it_last(
    engine: AsyncEngine, clock: Clock, sweep: Pruning
) -> None:
    place, holds = Place("eastus", "size"), clock() - timedelta(days=900)
    counts = []
    async with engine.begin() as conn:
        await market.save_prices(conn, {place: [PricePoint(holds, Decimal(8))]}, clock())
        await bills.save(conn, [bill(clock().date())], clock().date(), clock().date(), clock())
    for days in (399, 2):
        clock.advance(seconds=timedelta(days=days).total_seconds())
        await sweep.run_once()
        async with engine.connect() as conn:
            for table in (spot_prices, bills_table):
                found = await conn.execute(select(func.count()).select_from(table))
                counts.append(found.scalar_one())

    assert counts == [1, 1, 0, 0]


def bill(day: date) -> Billed:
    one = Decimal(1)
    return Billed(day=day, attempt_id="att-1", category="Storage", quantity=one, amount=one)


async def test_a_job_with_many_rows_is_pruned_some_at_a_time(
    engine: AsyncEngine, clock: Clock
) -> None:
    many = pruning.ROWS + 3
    async with engine.begin() as conn:
        await add_job(conn, clock(), id="over", state="cancelled", finished_at=clock())
        await metrics.add(conn, "over", 1, [measured(n) for n in range(1)])
        steps = select(func.generate_series(1, many).label("step")).subquery()
        row = select(tables.metrics).where(tables.metrics.c.step == 0).subquery()
        columns = [steps.c.step if c.name == "step" else c for c in row.c]
        await conn.execute(
            tables.metrics.insert().from_select(
                [c.name for c in row.c], select(*columns).select_from(row.join(steps, true()))
            )
        )
        first = await pruning.some(conn, Rows.METRICS, "over")
        second = await pruning.some(conn, Rows.METRICS, "over")
        rest = (await conn.execute(select(func.count()).select_from(tables.metrics))).scalar_one()

    assert (first, second, rest) == (False, True, 0)
