"""Read and write committed checkpoints, a copy of HEAD for listing; HEAD is authoritative.

Their order is that of their steps, not of their ids: several may be recorded at the same moment.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime

from sqlalchemy import ColumnElement, and_, case, or_, select, tuple_, update
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.schema.columns import among
from service.db.schema.tables import checkpoints, jobs, metrics
from service.domain.ids import new_id
from trainer.contract import Committed


@dataclass(frozen=True, kw_only=True)
class CheckpointRow:
    """Row of a checkpoint, with the metrics of its step if they are known."""

    id: str
    job_id: str
    step: int
    kind: str
    size: int
    world_size: int
    generation: int
    committed_at: datetime
    loss: float | None
    valid_loss: float | None
    accuracy: float | None
    kept_as: str  # "recent", "best" or "milestone"


@dataclass(frozen=True, kw_only=True)
class StoredCheckpoint:
    """A committed checkpoint that exists; of several of one step the newest."""

    id: str
    job_id: str
    path: str
    step: int
    kept_as: str  # "recent", "best" or "milestone"
    committed_at: datetime
    manifest_sha256: str  # as first read from HEAD


async def of_job(conn: AsyncConnection, job_id: str) -> list[StoredCheckpoint]:
    """Return the job's existing checkpoints, newest first."""
    return await _stored(conn, checkpoints.c.job_id == job_id)


async def in_project(conn: AsyncConnection, project_id: str) -> list[StoredCheckpoint]:
    """Return the existing checkpoints of all jobs of the project, newest job first."""
    of_project = select(jobs.c.id).where(jobs.c.project_id == project_id)
    return await _stored(conn, checkpoints.c.job_id.in_(of_project))


async def _stored(conn: AsyncConnection, condition: ColumnElement[bool]) -> list[StoredCheckpoint]:
    c = checkpoints.c
    query = (
        select(*(c[f.name] for f in fields(StoredCheckpoint)))
        .where(condition, c.dropped_at.is_(None), c.broken_because.is_(None))
        .ext(distinct_on(c.job_id, c.step))
        .order_by(c.job_id.desc(), c.step.desc(), c.generation.desc())
    )
    return [StoredCheckpoint(**row) for row in (await conn.execute(query)).mappings()]


async def paths_of_step(conn: AsyncConnection, job_id: str, step: int) -> dict[str, bool]:
    """Return the paths of all checkpoints of a step, and whether each still exists."""
    c = checkpoints.c
    query = select(c.path, c.dropped_at.is_(None).label("kept"))
    statement = query.where(c.job_id == job_id, c.step == step).order_by(c.path)
    return {row.path: row.kept for row in await conn.execute(statement)}


async def drop(conn: AsyncConnection, job_id: str, step: int, now: datetime) -> None:
    """Mark the checkpoints of a step as dropped; the caller writes HEAD next."""
    c = checkpoints.c
    statement = update(checkpoints).where(
        c.job_id == job_id, c.step == step, c.dropped_at.is_(None)
    )
    await conn.execute(statement.values(dropped_at=now))


async def add(
    conn: AsyncConnection, job_id: str, entry: Committed, kept_as: str, now: datetime
) -> bool:
    """Write a checkpoint that HEAD names, dated by the node's clock; return whether it is new."""
    row = {
        "id": new_id("ftckpt", now),
        "job_id": job_id,
        "path": entry.path,
        "step": entry.step,
        "generation": entry.generation,
        "kind": entry.kind,
        "size": entry.size,
        "world_size": entry.world_size,
        "committed_at": datetime.fromtimestamp(entry.committed_at, UTC),
        "kept_as": kept_as,
        "manifest_sha256": entry.manifest_sha256,
    }
    statement = upsert(checkpoints).values(row).on_conflict_do_nothing()
    done = await conn.execute(statement.returning(checkpoints.c.id))
    return done.one_or_none() is not None


async def known_paths(conn: AsyncConnection, job_id: str, paths: Collection[str]) -> frozenset[str]:
    """Return which of ``paths`` have a row."""
    c = checkpoints.c
    query = select(c.path).where(c.job_id == job_id, c.path.in_(paths))
    return frozenset((await conn.execute(query)).scalars())


async def retained_paths(conn: AsyncConnection, jobs: Collection[str]) -> dict[str, dict[str, str]]:
    """Return, by job, the path of each existing checkpoint and why it is kept."""
    c = checkpoints.c
    query = select(c.job_id, c.path, c.kept_as).where(among(c.job_id, jobs), c.dropped_at.is_(None))
    paths: dict[str, dict[str, str]] = defaultdict(dict)
    for row in await conn.execute(query):
        paths[row.job_id][row.path] = row.kept_as
    return paths


async def match(
    conn: AsyncConnection, job_id: str, retained: Mapping[str, str], now: datetime
) -> bool:
    """Update rows to HEAD, which names exactly ``retained``: path -> why. Return if any changed.

    A dropped checkpoint exists again after a person restores an older HEAD.
    """
    c = checkpoints.c
    named = c.path.in_(retained)
    best, milestones = (
        [p for p, w in retained.items() if w == why] for why in ("best", "milestone")
    )
    reason = case((c.path.in_(milestones), "milestone"), (c.path.in_(best), "best"), else_="recent")
    outdated = and_(named, or_(c.dropped_at.is_not(None), c.kept_as != reason))
    wrong = or_(outdated, and_(~named, c.dropped_at.is_(None)))
    dropped_at = case((named, None), else_=now)
    statement = update(checkpoints).where(c.job_id == job_id, wrong)
    values = {"dropped_at": dropped_at, "kept_as": reason}
    return (await conn.execute(statement.values(values).returning(c.id))).first() is not None


async def condemn(conn: AsyncConnection, job_id: str, path: str, because: str) -> bool:
    """Mark the checkpoint as broken; return whether it was not yet. The next fence edits HEAD."""
    c = checkpoints.c
    conditions = (c.job_id == job_id, c.path == path, c.broken_because.is_(None))
    statement = (
        update(checkpoints).where(*conditions).values(broken_because=because).returning(c.id)
    )
    return (await conn.execute(statement)).first() is not None


async def newest(
    conn: AsyncConnection, job_id: str, *, after: str | None, limit: int
) -> list[CheckpointRow] | None:
    """Return existing checkpoints, newest first, older than ``after``.

    None if the job never had a checkpoint ``after``; a dropped one still works as a cursor.
    """
    c, m = checkpoints.c, metrics.c
    position = tuple_(c.step, c.generation)
    cursor = None
    if after is not None:
        result = await conn.execute(
            select(c.step, c.generation).where(c.job_id == job_id, c.id == after)
        )
        if (cursor := result.one_or_none()) is None:
            return None
    query = (
        select(
            *(c[n] for n in ("id", "job_id", "step", "kind", "size", "world_size", "generation")),
            c.committed_at,
            c.kept_as,
            m.loss,
            m.valid_loss,
            m.accuracy,
        )
        .outerjoin(metrics, (m.job_id == c.job_id) & (m.step == c.step))
        .where(c.job_id == job_id, c.dropped_at.is_(None), c.broken_because.is_(None))
    )
    if cursor is not None:
        query = query.where(position < tuple_(cursor.step, cursor.generation))
    rows = await conn.execute(query.order_by(c.step.desc(), c.generation.desc()).limit(limit))
    return [CheckpointRow(**r) for r in rows.mappings()]
