"""Generation rows: written once; only the wish to halt one is added later."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import and_, func, insert, literal, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.tables import generations
from trainer.contract import DirectiveKind, Generation


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A generation, and since when and how it is told to stop, if it is."""

    generation: Generation
    opened_at: datetime
    halted_at: datetime | None
    halt_kind: DirectiveKind | None


async def newest_number(conn: AsyncConnection, job_id: str) -> int:
    """The highest number of the job; 0 when there is none yet."""
    query = select(func.max(generations.c.number)).where(generations.c.job_id == job_id)
    return (await conn.execute(query)).scalar_one() or 0


async def current(conn: AsyncConnection, attempt_id: str) -> Opened | None:
    """The attempt's newest generation."""
    query = (
        select(generations)
        .where(generations.c.attempt_id == attempt_id)
        .order_by(generations.c.number.desc())
        .limit(1)
    )
    row = (await conn.execute(query)).one_or_none()
    if row is None:
        return None
    content = Generation.from_dict(row.content)
    return Opened(
        generation=content,
        opened_at=row.opened_at,
        halted_at=row.halted_at,
        halt_kind=DirectiveKind(row.halt_kind) if row.halt_kind else None,
    )


async def first_steps(conn: AsyncConnection, job_id: str) -> dict[str, int]:
    """The step of the checkpoint that each attempt of the job loaded first; 0 for none."""
    c = generations.c
    query = select(c.attempt_id, c.content).where(c.job_id == job_id).order_by(c.number.desc())
    loaded = {}
    for row in await conn.execute(query):
        checkpoint = Generation.from_dict(row.content).checkpoint
        loaded[row.attempt_id] = checkpoint.step if checkpoint else 0
    return loaded


async def without_news(conn: AsyncConnection, attempt_id: str, newest: str | None) -> int:
    """How many generations of the attempt loaded the checkpoint at ``newest``, still the newest."""
    loaded = generations.c.content["checkpoint"]["path"].astext
    same = loaded.is_(None) if newest is None else loaded == newest
    query = select(func.count()).where(generations.c.attempt_id == attempt_id, same)
    return int((await conn.execute(query)).scalar_one())


async def add(conn: AsyncConnection, generation: Generation, now: datetime) -> None:
    """Write the row; its number must be free (the primary key says so)."""
    row = {"job_id": generation.job_id, "number": generation.number, "opened_at": now}
    row |= {"attempt_id": generation.attempt_id, "content": generation.to_plain()}
    await conn.execute(insert(generations).values(row))


async def mark_halted(
    conn: AsyncConnection, generation: Generation, kind: DirectiveKind, reason: str, now: datetime
) -> bool:
    """Remember since when it is told to stop in this way; True when that is news.

    STOP is news after CHECKPOINT_AND_STOP, never the other way round.
    """
    c = generations.c
    fresh = or_(
        c.halted_at.is_(None), and_(c.halt_kind != kind, literal(kind == DirectiveKind.STOP))
    )
    done = await conn.execute(
        update(generations)
        .where(c.job_id == generation.job_id, c.number == generation.number, fresh)
        .values(halted_at=now, halt_kind=kind, halt_reason=reason)
        .returning(c.number)
    )
    return done.one_or_none() is not None
