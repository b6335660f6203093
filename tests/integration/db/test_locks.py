"""In which order rows are locked, and that nobody waits for rows that are not its own."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial

import pytest
from sqlalchemy import Table, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.attempts import attempts, nodes
from service.db.attempts.attempts import AttemptRow
from service.db.core import leases, locks
from service.db.core.leases import Claim
from service.db.files import files
from service.db.jobs import jobs
from service.db.jobs import step_metrics as measured_rows
from service.db.money import budgets
from service.db.schema import tables
from service.db.schema.file_tables import files as file_table
from service.domain.cloud.fleet import Price
from service.domain.lifecycle.node import node_id
from service.domain.storage.checkpoint_faults import CheckpointFault
from service.operations.attempts import findings, heads
from service.operations.nodes import heartbeats
from tests import waiting
from tests.clock import Clock
from tests.integration.db.rows import (
    NOTICE,
    add_attempt,
    add_job,
    add_node,
    blocked,
    checkpoint,
    claim_attempt,
    transact,
)
from tests.nodes.scripted_node import metrics
from tests.world import SPOT
from trainer.contract import Head

NODE = node_id("att-1", "vm")
PRICE = Price(hourly=Decimal(1), on_demand_hourly=Decimal(2))


@pytest.mark.parametrize("table", [tables.attempts, tables.jobs], ids=str)
async def test_a_writer_of_a_referenced_row_does_not_wait_at_its_older_version(
    batch: AsyncEngine, clock: Clock, table: Table
) -> None:
    """Two write rows that a third has changed meanwhile, while a fourth adds rows to them.

    Within one statement the first has the newest version, and waits at the older one behind the
    second, which waits for the newest.
    """
    async with batch.begin() as conn:
        for n in (1, 2):
            await add_job(conn, clock(), id=f"job-{n}", state="running")
            await add_attempt(conn, clock(), id=f"att-{n}", job_id=f"job-{n}")
    ids = {tables.attempts: ["att-1", "att-2"], tables.jobs: ["job-1", "job-2"]}[table]
    postponed = table.c.due_at + timedelta(days=1)

    async def hint(conn: AsyncConnection) -> None:
        await leases.enqueue_all(conn, table, ids, clock())

    async with batch.connect() as fourth, fourth.begin():
        await add_node(fourth, clock(), "vm-1", "att-1")
        ended_values = {"state": "terminating", "outcome": "evicted"}
        await add_attempt(fourth, clock(), id="att-3", job_id="job-1", number=2, **ended_values)
        async with batch.begin() as third_conn:
            await third_conn.execute(
                update(table).where(table.c.id == ids[0]).values(due_at=postponed)
            )
            writing = [asyncio.create_task(transact(batch, hint)) for _ in range(2)]
            await waiting.until(partial(blocked, batch), lambda count: count == 2)
        await asyncio.gather(*writing)  # raises where one met a deadlock

    async with batch.connect() as conn:
        hints = await conn.execute(select(table.c.hints).where(table.c.id.in_(ids)))
        assert list(hints.scalars()) == [2, 2]


async def test_metrics_are_locked_before_attempts_and_jobs(
    engine: AsyncEngine, clock: Clock
) -> None:
    """Else who keeps a heartbeat's steps, and then its job's progress, waits for who waits."""
    async with engine.begin() as conn:
        await add_job(conn, clock(), state="running")
        await add_attempt(conn, clock())
        node = await add_node(conn, clock(), "vm-1")
        await measured_rows.add(conn, "job", 0, [metrics(1)])
    heartbeat = replace(NOTICE, metrics=(metrics(1),))

    async with engine.connect() as other_conn, other_conn.begin():
        await other_conn.execute(update(tables.metrics).values(loss=1.0))
        task = asyncio.create_task(
            transact(
                engine,
                lambda conn: heartbeats.record_heartbeats(conn, {node.node_id: heartbeat}, clock()),
            )
        )
        await waiting.until(lambda: blocked(engine), lambda count: count == 1)
        queries = [  # raises where who waits has it locked already
            (
                await other_conn.execute(
                    select(table.c.id).with_for_update(nowait=True, key_share=True)
                )
            )
            .scalars()
            .all()
            for table in (tables.attempts, tables.jobs)
        ]
    await task

    assert queries == [["att-1"], ["job"]]


async def test_a_batch_does_not_wait_for_a_row_of_another_worker(
    batch: AsyncEngine, clock: Clock
) -> None:
    async with batch.begin() as conn:
        for n in (1, 2):
            await add_job(conn, clock(), id=f"job-{n}", state="running")
            await add_attempt(conn, clock(), id=f"att-{n}", job_id=f"job-{n}")
        claims = await attempts.claim_due(conn, clock(), 2)
    due_claims = [(claim, clock()) for claim, _ in claims]
    condition = tables.attempts.c.id == "att-2"
    statement = update(tables.attempts).where(condition).values(lease_token="another's")
    async with batch.begin() as conn:
        await conn.execute(statement)

    async with batch.begin() as other_conn:
        await other_conn.execute(statement)
        async with batch.begin() as conn, asyncio.timeout(60):
            released = await leases.release_all(conn, due_claims, clock())

    assert released == {"att-1"}


async def _tell_of_head(conn: AsyncConnection, _: Claim, row: AttemptRow, now: datetime) -> None:
    head = Head(generation=1, checkpoints=(checkpoint(2), checkpoint(1)))
    assert await heads.record(conn, row.job_id, head, now)


async def _give_up(conn: AsyncConnection, claim: Claim, row: AttemptRow, now: datetime) -> None:
    faults = [(checkpoint(1), CheckpointFault(file="a", reason="is gone"))]
    assert await findings.mark_broken(conn, claim, row, faults, None, now)


@pytest.mark.parametrize("record", [_tell_of_head, _give_up])
async def test_a_job_is_locked_before_its_checkpoints(
    engine: AsyncEngine,
    clock: Clock,
    record: Callable[[AsyncConnection, Claim, AttemptRow, datetime], Awaitable[None]],
) -> None:
    """Else who holds the job, and copies HEAD, waits for who waits."""
    async with engine.begin() as conn:
        await add_job(conn, clock(), state="running")
        await add_attempt(conn, clock())
        known_head = Head(generation=1, checkpoints=(checkpoint(1), checkpoint(0)))
        await heads.record(conn, "job", known_head, clock())
        ((claim, row),) = await attempts.claim_due(conn, clock(), 1)

    async with engine.connect() as other_conn, other_conn.begin():
        await other_conn.execute(select(tables.jobs.c.id).with_for_update(key_share=True))
        task = asyncio.create_task(transact(engine, lambda conn: record(conn, claim, row, clock())))
        await waiting.until(lambda: blocked(engine), lambda count: count == 1)
        query = select(tables.checkpoints.c.step).with_for_update(nowait=True)
        # Raises where one is locked already.
        steps = (await other_conn.execute(query)).scalars().all()
    await task

    assert sorted(steps) == [0, 1]


async def _hold_all(conn: AsyncConnection, claim: Claim, _: datetime) -> None:
    await leases.lock_all_claimed(conn, [claim])


async def _lock_budgets(conn: AsyncConnection, _: Claim, now: datetime) -> None:
    await budgets.set_project(conn, "p-job", Decimal(9), now, now)
    await conn.commit()
    await budgets.lock(conn, "job")


# By what is done: what it locks, and whether others may then write rows that refer to it.
LOCKS: dict[
    str, tuple[Callable[[AsyncConnection, Claim, datetime], Awaitable[object]], Table, bool]
] = {
    "hold claims": (_hold_all, tables.attempts, True),
    "hold a claim": (
        lambda conn, claim, _: leases.lock_claimed(conn, claim),
        tables.attempts,
        True,
    ),
    "take jobs": (lambda conn, *_: locks.lock_rows(conn, tables.jobs, ["job"]), tables.jobs, True),
    "find a job to write it": (
        lambda conn, *_: jobs.find(conn, "job", to_write=True),
        tables.jobs,
        True,
    ),
    "lock the budgets of a job": (_lock_budgets, tables.jobs, True),
    "lock the budget of its project": (_lock_budgets, tables.projects, True),
    "read a project's budget to write it": (
        lambda conn, *_: budgets.project(conn, "p-job", to_write=True),
        tables.projects,
        True,
    ),
    "give an attempt another price": (
        lambda conn, *_: attempts.reprice(conn, SPOT, PRICE),
        tables.attempts,
        True,
    ),
    "lock a node": (lambda conn, *_: nodes.lock(conn, NODE), tables.nodes, False),
    "lock a file": (lambda conn, *_: files.lock(conn, "p-job", "f-job"), file_table, False),
}


@pytest.mark.parametrize("kind", LOCKS)
async def test_a_row_lock_blocks_writers_and_admits_rows_that_refer_to_it(
    engine: AsyncEngine, clock: Clock, kind: str
) -> None:
    lock, table, lets_in = LOCKS[kind]
    async with engine.begin() as conn:
        await add_job(conn, clock())
        await add_attempt(conn, clock())
        await add_node(conn, clock(), "vm")
        claim, _ = await claim_attempt(conn, clock())
    ids_by_table = {tables.projects: "p-job", tables.attempts: "att-1", tables.nodes: NODE}
    row = ids_by_table.get(table, "f-job" if table is file_table else "job")
    query = select(table.c.id).where(table.c.id == row)

    async with engine.connect() as conn, engine.connect() as other_conn:
        await lock(conn, claim, clock())
        writes = (
            await other_conn.execute(query.with_for_update(skip_locked=True, key_share=True))
        ).all()
        refers = query.with_for_update(skip_locked=True, key_share=True, read=True)
        assert (len(writes), len((await other_conn.execute(refers)).all())) == (0, lets_in)


async def test_the_row_of_a_project_without_a_budget_stays_free(
    engine: AsyncEngine, clock: Clock
) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock())
    query = select(tables.projects.c.id).with_for_update(skip_locked=True)

    async with engine.connect() as conn, engine.connect() as other_conn:
        await budgets.lock(conn, "job")
        assert (await other_conn.execute(query)).scalars().all() == ["p-job"]
