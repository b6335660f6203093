"""Generations that open at a time, in one transaction: each with what is its own."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.attempts import attempts, generations
from service.db.attempts.attempts import AttemptRow
from service.db.core import leases
from service.db.core.leases import Claim
from service.db.jobs import jobs, step_metrics
from service.db.schema import tables
from service.domain.cloud.fleet import Price
from service.domain.lifecycle.attempt import OpenGeneration
from service.domain.lifecycle.node import NodeRecord, node_view
from service.operations.attempts.generations import Opening, open_all
from service.operations.nodes.registrations import PendingRegistration, register_all
from tests import waiting
from tests.clock import Clock
from tests.integration.db.rows import (
    add_attempt,
    add_job,
    add_node,
    blocked,
    checkpoint,
    generation,
    registration,
    transact,
)
from tests.nodes.scripted_node import metrics as measured
from tests.world import SPOT
from trainer.contract import Head

Deed = Callable[[AsyncConnection], Awaitable[object]]


async def add_trained_attempts(
    conn: AsyncConnection, clock: Clock, count: int
) -> list[tuple[Claim, AttemptRow, NodeRecord]]:
    """So many claimed attempts of as many jobs, each with a node that has told of step 47."""
    trained = {}
    for n in range(count):
        job_id, id_ = f"job-{n}", f"att-{n}"
        await add_job(
            conn, clock(), id=job_id, state="running", total_steps=50, run_spec_sha256="as pinned"
        )
        await add_attempt(conn, clock(), id=id_, job_id=job_id, vm_ids=["vm", "vm-2"])
        trained[id_] = await add_node(conn, clock(), "vm", id_)
        first = replace(generation(1, [trained[id_]], id_), job_id=job_id)
        await generations.begin_all(conn, [first], (), clock())
    await conn.execute(update(tables.nodes).values(generation=1, step=47))
    claims = sorted(
        await attempts.claim_due(conn, clock(), count), key=lambda claimed: claimed[1].id
    )
    return [(claim, row, trained[row.id]) for claim, row in claims]


def opening(
    claim: Claim, row: AttemptRow, node: NodeRecord, step_saved: int, **step: object
) -> Opening:
    """Return the second generation of this node, from what was saved (0: nothing)."""
    checkpoints = (checkpoint(step_saved),) if step_saved else ()
    members = replace(OpenGeneration(nodes=(node_view(node, present=True),)), **step)  # type: ignore[arg-type] # its members
    head = Head(generation=2, checkpoints=checkpoints)
    return Opening(claim=claim, row=row, step=members, head=head, run_spec_sha256="as pinned")


async def test_each_begins_with_its_own_checkpoint_counts_and_events(
    engine: AsyncEngine, clock: Clock
) -> None:
    async with engine.begin() as conn:
        running, failed, shrunk = await add_trained_attempts(conn, clock, 3)
        absent = node_view(running[2], present=False)
        openings = [
            opening(*running, step_saved=0),
            opening(*failed, step_saved=40, after_error=True),
            opening(*shrunk, step_saved=45, lost=(absent,)),
        ]
        steps = [replace(measured(step), seconds=float(step)) for step in (44, 46)]
        await step_metrics.add(conn, "job-1", 1, steps)
        evicted = await open_all(conn, openings, clock())

    async with engine.connect() as conn:
        rows = [await jobs.find(conn, f"job-{n}") for n in range(3)]
        current = [await generations.current(conn, f"att-{n}") for n in range(3)]
        a, e = tables.attempts.c, tables.events.c
        survived = await conn.execute(select(a.survived).order_by(a.id))
        result = await conn.execute(select(e.job_id, e.code).order_by(e.seq))
        codes = [(r.job_id, r.code) for r in result]
    counts = [(r.lost_steps, r.progress["step"], r.trainer_errors) for r in rows if r]
    # 7 steps of 45 s on one machine; of the others no step was measured.
    assert sorted((o.steps, o.machine_seconds) for o in evicted) == [(2, 0), (7, 315), (47, 0)]
    assert {row.capacity_type for row in evicted} == {"spot"}
    assert counts == [(47, 0, 0), (7, 40, 1), (2, 45, 0)]
    assert [(b.generation.number, b.lost_steps) for b in current if b] == [(2, 47), (2, 7), (2, 2)]
    assert list(survived.scalars()) == [0, 0, 1]
    assert codes == [
        ("job-1", "checkpoint.committed"),
        ("job-2", "checkpoint.committed"),
        ("job-0", "generation.opened"),
        ("job-1", "generation.opened"),
        ("job-2", "node.evicted"),
        ("job-2", "generation.opened"),
    ]


def machines(ids: Sequence[str], vm_id: str, now: Clock) -> list[PendingRegistration]:
    """One of each attempt that registers."""
    return [PendingRegistration(registration(id_, vm_id), now()) for id_ in ids]


MANY = 9


async def test_generations_registrations_prices_and_enqueues_do_not_deadlock(
    batch: AsyncEngine, clock: Clock
) -> None:
    async with batch.begin() as conn:
        trained = await add_trained_attempts(conn, clock, MANY)
    absent = node_view(trained[0][2], present=False)
    openings = [
        opening(*item, step_saved=40, lost=(absent,) if n % 2 else ())
        for n, item in enumerate(trained)
    ]
    ids = [row.id for _, row, _ in trained]
    higher_price = Price(hourly=Decimal(9), on_demand_hourly=Decimal(33))
    operations: list[Deed] = [
        lambda conn: open_all(conn, openings[::-1], clock()),
        lambda conn: register_all(conn, machines(ids, "vm-2", clock)),
        lambda conn: register_all(conn, machines(ids[::-1], "vm-3", clock)),
        lambda conn: attempts.reprice(conn, SPOT, higher_price),
        lambda conn: leases.enqueue_all(conn, tables.attempts, ids[::-1], clock()),
    ]
    for middle in (0, MANY // 2, MANY - 1):
        await _again(batch, trained)
        async with batch.begin() as conn:  # who locks in another order holds what others want
            query = select(tables.attempts.c.id).where(tables.attempts.c.id == f"att-{middle}")
            await conn.execute(query.with_for_update(key_share=True))
            tasks = [asyncio.create_task(transact(batch, operation)) for operation in operations]
            await waiting.until(partial(blocked, batch), lambda count: count >= 2)
        await asyncio.gather(*tasks)  # raises where one met a deadlock

        async with batch.connect() as conn:
            current_rows = [await generations.current(conn, id_) for id_ in ids]
            assert {n.generation.number for n in current_rows if n} == {2}


async def _again(
    engine: AsyncEngine, trained: Sequence[tuple[Claim, AttemptRow, NodeRecord]]
) -> None:
    """As it was before the generations opened, the leases held."""
    async with engine.begin() as conn:
        second = tables.generations.c.number == 2
        await conn.execute(tables.generations.delete().where(second))
        new = tables.nodes.c.vm_id != "vm"
        await conn.execute(tables.nodes.delete().where(new))
        postponed = {"due_at": trained[0][1].created_at.replace(year=2100), "hourly": 8}
        values = {"lease_token": trained[0][0].token, **postponed}
        await conn.execute(update(tables.attempts).values(values))
