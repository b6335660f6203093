"""Crowds with more values than one statement has room for: 65,535, by PostgreSQL's protocol."""

import asyncio
from collections.abc import Sequence
from decimal import Decimal

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.core.batching import Batcher
from service.db.money import ledger
from service.db.money.ledger import ExistingMachines
from service.db.schema import tables
from service.domain.cloud.fleet import Price
from tests.clock import Clock
from tests.integration.db.rows import add_attempt, add_job
from tests.nodes.scripted_node import boot, commit, committed, evicted, say_all, train
from tests.nodes.scripted_node import metrics as measured
from tests.world import World
from trainer.contract import MEASURED, NodePhase

UNTOLD = 3000  # steps, of 22 values each
MACHINES = 11_000  # of six
MOST = 65_535


async def committed_untold(world: World) -> str:
    """Evict a job's machines after they committed many steps without reporting them."""
    job = await world.submit()
    nodes = await boot(world, job["id"])
    async with world.engine.begin() as conn:  # what is beyond a job's last step is not kept
        await conn.execute(update(tables.jobs).values(total_steps=UNTOLD + 2))
    number = await train(world, nodes, step=1)
    entry = committed(UNTOLD + 1, number, "final")
    lines = "\n".join(measured(step).to_json() for step in range(2, UNTOLD + 2))
    await world.store.write(job["id"], f"{entry.path}/{MEASURED}", lines.encode())
    await commit(world, job["id"], entry)
    await say_all(nodes, NodePhase.FINISHED, number, step=UNTOLD + 1)
    await evicted(world, job["id"])
    return str(job["id"])


async def count_steps(engine: AsyncEngine, job_id: str) -> int:
    """How many of the job's steps are known."""
    async with engine.connect() as conn:
        query = select(func.count()).where(tables.metrics.c.job_id == job_id)
        return int((await conn.execute(query)).scalar_one())


async def test_a_job_whose_last_machines_committed_thousands_of_untold_steps_ends(
    world: World,
) -> None:
    job_id = await committed_untold(world)

    await world.tick(8)

    assert (await world.job(job_id))["status"] == "succeeded"
    assert await count_steps(world.engine, job_id) == UNTOLD + 1


async def test_thousands_of_machines_are_billed_at_once_and_at_another_price(
    engine: AsyncEngine, clock: Clock
) -> None:
    price = Price(hourly=Decimal("8.44"), on_demand_hourly=Decimal("32.77"))
    vms = [f"vm-{n}" for n in range(MACHINES)]
    existing = ExistingMachines(
        job_id="job", attempt_id="att-1", vm_ids=vms, price=price, since=clock()
    )
    async with engine.begin() as conn:
        await add_job(conn, clock())
        await add_attempt(conn, clock())
        await ledger.meter(conn, [existing], clock())
        first = await ledger.of_job(conn, "job")
        clock.advance(seconds=60)
        higher_price = Price(hourly=Decimal(9), on_demand_hourly=Decimal("32.77"))
        await ledger.reprice(conn, "att-1", higher_price, clock())
        rows = await ledger.of_job(conn, "job")

    assert [row.vm_id for row in first] == vms
    assert {(row.started_at, row.ended_at, row.hourly) for row in first} == {
        (existing.since, None, price.hourly)
    }
    assert [row.hourly for row in rows if row.ended_at is None] == [higher_price.hourly] * MACHINES


async def test_a_batch_with_too_many_values_is_done_one_by_one(engine: AsyncEngine) -> None:
    crowds: list[int] = []

    async def work(numbers: Sequence[int]) -> list[int | Exception]:
        crowds.append(len(numbers))
        values = ("x",) * (MOST // 2 + 1) * len(numbers)
        query = f"select 1 where 'x' in ({', '.join(['%s'] * len(values))})"
        async with engine.begin() as conn:
            await conn.exec_driver_sql(query, values)
        return list(numbers)

    batcher = Batcher(work)
    assert await asyncio.gather(*(batcher.do(n) for n in (1, 2))) == [1, 2]
    assert crowds == [2, 1, 1]
