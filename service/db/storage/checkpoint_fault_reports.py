"""Read and write findings: nodes' reports of checkpoints that they could not load."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select, text
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.schema.tables import checkpoints, findings
from service.domain.storage.checkpoint_faults import CheckpointFinding

_BEFORE = text("""
select j.id, j.run_spec_sha256,
  array(select path from checkpoints where job_id = j.id and broken_because is not null) as broken,
  exists (
    select from findings f join checkpoints k on k.job_id = f.job_id and k.path = f.path
    where f.job_id = j.id and k.dropped_at is null and k.broken_because is null
  ) as doubted,
  array(
    select path || ' ' || manifest_sha256 from checkpoints
    where job_id = j.id and broken_because is null
  ) as anchors
from jobs j where j.id = any(:ids)
""")


@dataclass(frozen=True, kw_only=True)
class CheckpointHistory:
    """Facts about a job's checkpoints that decide what a new generation loads."""

    run_spec_sha256: str
    broken: frozenset[str]  # paths of checkpoints that must not be loaded
    doubted: bool  # a node has reported another one
    anchors: Mapping[str, str]  # path -> first seen hash of the manifest, of all others


async def histories(conn: AsyncConnection, job_ids: Sequence[str]) -> dict[str, CheckpointHistory]:
    """Return the facts of prepared jobs, by job."""
    return {
        row.id: CheckpointHistory(
            run_spec_sha256=row.run_spec_sha256,
            broken=frozenset(row.broken),
            doubted=row.doubted,
            anchors=dict(anchor.rsplit(" ", 1) for anchor in row.anchors),
        )
        for row in await conn.execute(_BEFORE, {"ids": list(job_ids)})
    }


async def add(conn: AsyncConnection, job_id: str, path: str, finding: CheckpointFinding) -> None:
    """Write a finding; a repeated one changes nothing."""
    row = {"job_id": job_id, "path": path, **vars(finding)}
    await conn.execute(upsert(findings).values(row).on_conflict_do_nothing())


async def open_of(conn: AsyncConnection, job_id: str) -> dict[str, list[CheckpointFinding]]:
    """Return findings on the job's checkpoints that are still in use, by path, oldest first."""
    c, k = findings.c, checkpoints.c
    columns = [c[name] for name in CheckpointFinding.__dataclass_fields__]
    join_condition = (k.job_id == c.job_id) & (k.path == c.path)
    query = (
        select(c.path, *columns)
        .join(checkpoints, join_condition)
        .where(c.job_id == job_id, k.dropped_at.is_(None), k.broken_because.is_(None))
        .order_by(c.generation, c.node_id)
    )
    reports = defaultdict(list)
    for row in (await conn.execute(query)).mappings():
        values = dict(row)
        reports[values.pop("path")].append(CheckpointFinding(**values))
    return dict(reports)
