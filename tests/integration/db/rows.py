"""Rows for tests of the database's floor: keyword-only, one function per row."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from sqlalchemy import Table, insert, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.attempts import attempts as attempt_rows
from service.db.attempts import nodes as node_rows
from service.db.attempts.attempts import AttemptRow
from service.db.core.leases import Claim
from service.db.jobs import jobs as job_rows
from service.db.schema import file_tables, tables
from service.domain.lifecycle.job import Job
from service.domain.lifecycle.node import NodeRecord, node_id
from tests.world import SPOT
from trainer.contract import (
    PROTOCOL,
    Committed,
    EvictionNotice,
    Generation,
    Heartbeat,
    Member,
    NodePhase,
    Registration,
)

NOTICE = Heartbeat(  # of a machine that Azure takes back
    epoch=1,
    seq=2,
    phase=NodePhase.RUNNING,
    generation=0,
    step=0,
    free_port=29500,
    eviction=EvictionNotice(event_id="e", not_before=0.0, seen_at=0.0),
)


async def transact(
    engine: AsyncEngine, operation: Callable[[AsyncConnection], Awaitable[object]]
) -> None:
    """Do ``operation`` in a transaction of its own: all of it, or nothing."""
    async with engine.begin() as conn:
        await operation(conn)


async def add(conn: AsyncConnection, table: Table, **values: Any) -> None:  # noqa: ANN401
    """Write a row as it is."""
    await conn.execute(insert(table).values(**values))


async def add_job(conn: AsyncConnection, now: datetime, **values: Any) -> None:  # noqa: ANN401
    """Add a queued job "job" with its project, key and file."""
    job_id = values.get("id", "job")
    await add(conn, tables.projects, id=f"p-{job_id}", name=f"p-{job_id}", created_at=now)
    key = {"project_id": f"p-{job_id}", "name": "k", "sha256": job_id.encode(), "hint": "abcd"}
    await add(conn, tables.api_keys, id=f"k-{job_id}", created_at=now, **key)
    file = {"filename": "f", "purpose": "fine-tune", "bytes": 1, "sha256": "", "examples": 1}
    file |= {"characters": 1, "mean_tokens": 1, "project_id": f"p-{job_id}"}
    await add(conn, file_tables.files, id=f"f-{job_id}", created_at=now, **file)
    row = {
        "id": job_id,
        "project_id": f"p-{job_id}",
        "api_key_id": f"k-{job_id}",
        "body_sha256": "",
        "request": {},
        "model": "m",
        "training_file": f"f-{job_id}",
        "plan": {},
        "total_steps": 10,
        "state": "queued",
        "since": now,
        "created_at": now,
        "updated_at": now,
        "due_at": now,
    }
    await add(conn, tables.jobs, **row | values)


async def add_attempt(conn: AsyncConnection, now: datetime, **values: Any) -> None:  # noqa: ANN401
    """Add a running attempt "att-1" of "job"."""
    row = {
        "id": "att-1",
        "job_id": "job",
        "number": 1,
        "region": SPOT.region,
        "vm_size": SPOT.vm_size,
        "capacity_type": "spot",
        "hourly": 8,
        "on_demand_hourly": 32,
        "instance_count": 2,
        "processes_per_node": 1,
        "state": "running",
        "since": now,
        "created_at": now,
        "due_at": now,
    }
    await add(conn, tables.attempts, **row | values)


async def add_node(
    conn: AsyncConnection, now: datetime, vm_id: str, attempt_id: str = "att-1"
) -> NodeRecord:
    """Add a node that is ready and has just sent a heartbeat."""
    record = NodeRecord(
        node_id=node_id(attempt_id, vm_id),
        attempt_id=attempt_id,
        vm_id=vm_id,
        boot_id="boot-1",
        address="10.0.0.4",
        heard_at=now.timestamp(),
        phase=NodePhase.READY,
        free_port=29500,
    )
    await node_rows.save(conn, record, name=vm_id)
    return record


def registration(
    attempt_id: str,
    vm_id: str,
    boot_id: str = "boot-1",
    **columns: Any,  # noqa: ANN401
) -> Registration:
    """Return what a machine says when it registers."""
    values: dict[str, Any] = {"name": vm_id, "address": "127.0.0.9", "gpus": 0} | columns
    return Registration(
        protocol=PROTOCOL, attempt_id=attempt_id, vm_id=vm_id, boot_id=boot_id, **values
    )


async def claim_attempt(conn: AsyncConnection, now: datetime) -> tuple[Claim, AttemptRow]:
    """Claim the one attempt that is due."""
    ((claim, row),) = await attempt_rows.claim_due(conn, now, 10)
    return claim, row


async def claim_job(conn: AsyncConnection, now: datetime) -> tuple[Claim, Job]:
    """Claim the one job that is due."""
    ((claim, job),) = await job_rows.claim_due(conn, now, 10)
    return claim, job


def generation(number: int, nodes: list[NodeRecord], attempt_id: str = "att-1") -> Generation:
    """Return a generation of these nodes."""
    members = tuple(
        Member(node_id=n.node_id, vm_id=n.vm_id, address=n.address, node_rank=rank)
        for rank, n in enumerate(nodes)
    )
    return Generation(
        number=number,
        job_id="job",
        attempt_id=attempt_id,
        members=members,
        processes_per_node=1,
        master_address="10.0.0.4",
        master_port=29500,
        checkpoint=None,
        run_spec_sha256="",
    )


def checkpoint(step: int, generation: int = 1, kind: str = "periodic") -> Committed:
    """Return HEAD's entry of a checkpoint or model."""
    return Committed(
        path=f"checkpoints/step-{step:08d}-{generation}{kind}",
        step=step,
        consumed_samples=step,
        world_size=2,
        generation=generation,
        kind=kind,
        size=1000,
        manifest_sha256="",
        committed_at=1_795_000_000.0 + step,
    )


async def blocked(engine: AsyncEngine) -> int:
    """Transactions that wait for a row of another one."""
    query = "select count(distinct pid) from pg_locks where not granted"
    async with engine.connect() as conn:
        return int((await conn.execute(text(query))).scalar_one())
