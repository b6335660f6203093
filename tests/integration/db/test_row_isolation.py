"""A write leaves the rows beside it as they were; what holds for a while holds to its second."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Table, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.attempts import attempts, nodes
from service.db.cloud import circuit_breaker
from service.db.core import leases
from service.db.files import files, preflights
from service.db.jobs import jobs
from service.db.money import storage_cost
from service.db.queue import queue
from service.db.schema import tables
from service.db.schema.cloud_tables import cloud_circuits
from service.db.schema.file_tables import files as file_table
from service.db.schema.queue_tables import queue as queue_table
from service.db.schema.storage_tables import storage_ledger
from service.domain.cloud.circuit_breaker import PROBE, Circuit
from service.domain.lifecycle.node import node_id
from service.domain.money.storage_cost import LevelChange
from service.domain.storage.access_tiers import AccessTier
from tests.clock import Clock
from tests.integration.db.rows import add, add_attempt, add_job, add_node

# The middle one is written: the ids of the others are smaller and larger.
JOBS = ("job-1", "job-2", "job-3")
JOB, ATTEMPT, NODE, FILE = "job-2", "att-job-2", node_id("att-job-2", "vm"), "f-job-2"
TABLES = (tables.jobs, tables.attempts, tables.nodes, file_table, storage_ledger)

Write = Callable[[AsyncConnection, Clock], Awaitable[object]]


async def end_of_storage(conn: AsyncConnection, clock: Clock) -> None:
    """Record that nothing of the job is stored any more."""
    await storage_cost.start_metering(conn, JOB, clock())
    (claim,) = await storage_cost.claim_due(conn, clock(), 10)
    change = LevelChange(tier=AccessTier.HOT, at=clock(), level=None)
    await storage_cost.record(conn, claim, [change], clock(), clock())


WRITES: dict[str, tuple[Table, Write]] = {
    "a file is deleted": (file_table, lambda c, now: files.mark_deleted(c, FILE, now())),
    "metadata are set": (tables.jobs, lambda c, _: jobs.set_metadata(c, JOB, {"a": "b"})),
    "errors are forgotten": (tables.jobs, lambda c, _: jobs.forget_trainer_errors(c, JOB)),
    "a result is kept": (tables.jobs, lambda c, _: jobs.remember_result(c, JOB, {"a": 1})),
    "a pause is asked for": (
        tables.jobs,
        lambda c, now: jobs.request_once(c, "p-job-2", JOB, now(), "pause_requested_at"),
    ),
    "an attempt is looked at": (
        tables.attempts,
        lambda c, now: attempts.request_reread(c, [ATTEMPT], now()),
    ),
    "an attempt is hinted": (
        tables.attempts,
        lambda c, now: leases.enqueue(c, tables.attempts, ATTEMPT, now()),
    ),
    "a node was heard": (tables.nodes, lambda c, _: nodes.record_acknowledged(c, NODE, 9)),
    "storage ends": (storage_ledger, end_of_storage),
}


async def rows_of(conn: AsyncConnection, table: Table) -> list[dict[str, Any]]:
    """Every row, in the order of the jobs."""
    rows = (await conn.execute(select(table).order_by(*table.primary_key))).mappings()
    return [dict(row) for row in rows]


@pytest.mark.parametrize("kind", WRITES)
async def test_a_write_changes_its_own_row_and_none_beside_it(
    engine: AsyncEngine, clock: Clock, kind: str
) -> None:
    table, write = WRITES[kind]
    async with engine.begin() as conn:
        for job in JOBS:
            await add_job(conn, clock(), id=job, trainer_errors=1)
            await add_attempt(conn, clock(), id=f"att-{job}", job_id=job)
            await add_node(conn, clock(), "vm", f"att-{job}")
            stored = {"tier": AccessTier.HOT, "started_at": clock(), "size": 5, "month": 1}
            await add(conn, storage_ledger, job_id=job, **stored)
        before = {t: await rows_of(conn, t) for t in TABLES}
        clock.advance(minutes=1)
        await write(conn, clock)
        after = {t: await rows_of(conn, t) for t in TABLES}

    values = {t: [old != new for old, new in zip(before[t], after[t], strict=True)] for t in TABLES}
    assert values[table] == [False, True, False]
    assert all(not (first or last) for first, _, last in values.values())


async def test_a_region_that_is_shut_is_probed_and_opened_by_itself(
    engine: AsyncEngine, clock: Clock
) -> None:
    regions, shut_until = ("eastus", "northeurope", "westus"), clock() + timedelta(seconds=5)
    async with engine.begin() as conn:
        for region in regions:
            await add(conn, cloud_circuits, region=region, failures=1, shut_until=shut_until)
        clock.advance(seconds=6)
        assert await circuit_breaker.claim_probe(conn, "northeurope", clock())
        probed = [await circuit_breaker.find(conn, region) for region in regions]
        await circuit_breaker.record_success(conn, "northeurope")
        circuits = [await circuit_breaker.find(conn, region) for region in regions]

    circuit = Circuit(failures=1, shut_until=shut_until)
    assert probed == [circuit, replace(circuit, shut_until=clock() + PROBE), circuit]
    assert circuits == [circuit, Circuit(), circuit]


Begin = Callable[[AsyncConnection, datetime], Awaitable[object]]
IsOver = Callable[[AsyncConnection, datetime], Awaitable[bool]]


async def claim_check(conn: AsyncConnection, now: datetime) -> bool:
    return await preflights.claim(conn, "key", now)


async def refuse_check(conn: AsyncConnection, now: datetime) -> None:
    await preflights.claim(conn, "key", now)
    await preflights.refuse(conn, "key", {"code": "any"}, now)


async def admit(conn: AsyncConnection, now: datetime) -> None:
    project_rows = {
        "job_id": "job-1",
        "project_id": "p-job-1",
        "priority": "normal",
        "gpus": 8,
        "wants": [],
    }
    await add(conn, queue_table, **project_rows, admitted_at=now, region="eastus", cores=96)


async def keeps_no_cores(conn: AsyncConnection, now: datetime) -> bool:
    admission = (await queue.admitted(conn, ["job-1"], now))["job-1"]
    assert admission in (("eastus", 96), ("eastus", 0))
    return admission[1] == 0


WINDOWS: dict[str, tuple[float, Begin, IsOver]] = {
    "a check without progress": (30, claim_check, claim_check),
    "a check that was refused": (60, refuse_check, claim_check),
    "cores of a job that was let in": (300, admit, keeps_no_cores),
}


@pytest.mark.parametrize("kind", WINDOWS)
async def test_a_window_of_time_is_as_long_as_it_is_said_to_be(
    engine: AsyncEngine, clock: Clock, kind: str
) -> None:
    seconds, begin, is_over = WINDOWS[kind]
    async with engine.begin() as conn:
        await add_job(conn, clock(), id="job-1", due_at=clock() + timedelta(days=1))
        start = clock()
        await begin(conn, start)
        before = await is_over(conn, start + timedelta(seconds=seconds, milliseconds=-1))
        after = await is_over(conn, start + timedelta(seconds=seconds, milliseconds=1))

    assert (before, after) == (False, True)
