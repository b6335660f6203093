"""Crowds with more values than one statement has room for: 65,535, by PostgreSQL's protocol."""

import asyncio
import math
from collections.abc import Sequence
from decimal import Decimal

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.core.batching import Batcher
from service.db.jobs import step_metrics
from service.db.jobs.step_metrics import StepRange
from service.db.money import ledger
from service.db.money.ledger import ExistingMachines
from service.db.schema import tables
from service.domain.cloud.fleet import Price, scale_set_name
from tests.clock import Clock
from tests.integration.db.rows import add_attempt, add_job
from tests.nodes.scripted_node import boot, commit, committed, train
from tests.nodes.scripted_node import metrics as measured
from tests.world import World
from trainer.contract import MEASURED, NodePhase

UNTOLD = 3000  # steps, of 22 values each
MACHINES = 11_000  # of six
MOST = 65_535


async def committed_untold(world: World, kind: str) -> str:
    """A job whose machines committed many steps and told nobody of them, and then went."""
    job = await world.submit()
    nodes = await boot(world, job["id"])
    async with world.engine.begin() as conn:  # what is beyond a job's last step is not kept
        await conn.execute(update(tables.jobs).values(total_steps=UNTOLD + 2))
    number = await train(world, nodes, step=1)
    entry = committed(UNTOLD + 1, number, kind)
    lines = "\n".join(measured(step).to_json() for step in range(2, UNTOLD + 2))
    await world.store.write(job["id"], f"{entry.path}/{MEASURED}", lines.encode())
    await commit(world, job["id"], entry)
    if kind == "final":
        for node in nodes:
            await node.say(NodePhase.FINISHED, number, step=UNTOLD + 1)
    for instance in ("0", "1"):
        world.cloud.evict(scale_set_name(nodes[0].attempt_id), instance)
    return str(job["id"])


async def kept(engine: AsyncEngine, job_id: str) -> int:
    """How many of the job's steps are known."""
    async with engine.connect() as conn:
        query = select(func.count()).where(tables.metrics.c.job_id == job_id)
        return int((await conn.execute(query)).scalar_one())


async def test_a_job_whose_last_machines_committed_thousands_of_untold_steps_ends(
    world: World,
) -> None:
    job_id = await committed_untold(world, "final")

    await world.tick(8)

    assert (await world.job(job_id))["status"] == "succeeded"
    assert await kept(world.engine, job_id) == UNTOLD + 1


async def test_a_generation_begins_after_thousands_of_untold_steps(world: World) -> None:
    job_id = await committed_untold(world, "periodic")
    await world.tick(2)

    await train(world, await boot(world, job_id), step=UNTOLD + 2)

    assert (await world.job(job_id))["status"] == "running"
    assert await kept(world.engine, job_id) == UNTOLD + 2


async def test_a_loss_that_is_no_number_is_kept_as_such(engine: AsyncEngine, clock: Clock) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock())
        await step_metrics.add(conn, "job", 1, [measured(1, math.nan), measured(2, math.inf)])
        rows = await step_metrics.series(conn, "job", StepRange(from_step=0, to_step=9), limit=9)

    assert math.isnan(rows[0]["loss"])
    assert rows[1]["loss"] == math.inf


async def test_thousands_of_machines_are_billed_at_once_and_at_another_price(
    engine: AsyncEngine, clock: Clock
) -> None:
    price = Price(hourly=Decimal("8.44"), on_demand_hourly=Decimal("32.77"))
    vms = [f"vm-{n}" for n in range(MACHINES)]
    there = ExistingMachines(
        job_id="job", attempt_id="att-1", vm_ids=vms, price=price, since=clock()
    )
    async with engine.begin() as conn:
        await add_job(conn, clock())
        await add_attempt(conn, clock())
        await ledger.meter(conn, [there], clock())
        first = await ledger.of_job(conn, "job")
        clock.advance(seconds=60)
        dearer = Price(hourly=Decimal(9), on_demand_hourly=Decimal("32.77"))
        await ledger.reprice(conn, "att-1", dearer, clock())
        rows = await ledger.of_job(conn, "job")

    assert [row.vm_id for row in first] == vms
    assert {(row.started_at, row.ended_at, row.hourly) for row in first} == {
        (there.since, None, price.hourly)
    }
    assert [row.hourly for row in rows if row.ended_at is None] == [dearer.hourly] * MACHINES


async def test_a_crowd_with_too_many_values_is_done_one_by_one(engine: AsyncEngine) -> None:
    crowds: list[int] = []

    async def work(numbers: Sequence[int]) -> list[int | Exception]:
        crowds.append(len(numbers))
        values = ("x",) * (MOST // 2 + 1) * len(numbers)
        query = f"select 1 where 'x' in ({', '.join(['%s'] * len(values))})"
        async with engine.begin() as conn:
            await conn.exec_driver_sql(query, values)
        return list(numbers)

    together = Batcher(work)
    assert await asyncio.gather(*(together.do(n) for n in (1, 2))) == [1, 2]
    assert crowds == [2, 1, 1]
