"""Committed checkpoints, as read from HEAD: a copy for listing, never the truth."""

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.tables import checkpoints, metrics
from service.domain.ids import new_id
from trainer.contract import Committed


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One row, with the metrics of its step where they are known."""

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


async def add(conn: AsyncConnection, job_id: str, entry: Committed) -> bool:
    """Keep what HEAD names; True when it was news."""
    committed_at = datetime.fromtimestamp(entry.committed_at, UTC)
    row = {
        "id": new_id("ftckpt", committed_at),
        "job_id": job_id,
        "path": entry.path,
        "step": entry.step,
        "generation": entry.generation,
        "kind": entry.kind,
        "size": entry.size,
        "world_size": entry.world_size,
        "committed_at": committed_at,
    }
    statement = upsert(checkpoints).values(row).on_conflict_do_nothing()
    done = await conn.execute(statement.returning(checkpoints.c.id))
    return done.one_or_none() is not None


async def newest(
    conn: AsyncConnection, job_id: str, *, after: str | None, limit: int
) -> list[Checkpoint] | None:
    """Newest first, older than ``after``; None when there is no such checkpoint of this job."""
    c, m = checkpoints.c, metrics.c
    if after is not None:
        known = await conn.execute(select(c.id).where(c.job_id == job_id, c.id == after))
        if known.one_or_none() is None:
            return None
    query = (
        select(
            *(c[n] for n in ("id", "job_id", "step", "kind", "size", "world_size", "generation")),
            c.committed_at,
            m.loss,
            m.valid_loss,
            m.accuracy,
        )
        .outerjoin(metrics, (m.job_id == c.job_id) & (m.step == c.step))
        .where(c.job_id == job_id)
    )
    if after is not None:
        query = query.where(c.id < after)
    rows = await conn.execute(query.order_by(c.id.desc()).limit(limit))
    return [Checkpoint(**r) for r in rows.mappings()]
