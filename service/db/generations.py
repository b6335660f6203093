"""Generation rows: written once; only the wish to halt one is added later."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, and_, func, insert, literal, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.tables import generations, jobs, metrics, nodes
from service.domain.ladder import Ladder
from trainer.contract import DirectiveKind, Generation, Rung


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A generation, and since when and how it is told to stop, if it is."""

    generation: Generation
    opened_at: datetime
    halted_at: datetime | None
    halt_kind: DirectiveKind | None
    halt_reason: str
    lost_steps: int  # of the generation before, done again by this one


async def newest(conn: AsyncConnection, job_id: str) -> Generation | None:
    """The job's, of whatever attempt."""
    query = select(generations.c.content).where(generations.c.job_id == job_id)
    query = query.order_by(generations.c.number.desc()).limit(1)
    content = (await conn.execute(query)).scalar_one_or_none()
    return Generation.from_dict(content) if content else None


async def ladder(conn: AsyncConnection, job_id: str, last: Generation | None) -> Ladder:
    """Where the job is on it after this generation, its newest."""
    recipe = jobs.c.plan["recipe"]["gradient_checkpointing"]
    query = select(jobs.c.plan["micro_batch"], recipe).where(jobs.c.id == job_id)
    micro_batch, checkpointing = (await conn.execute(query)).one()
    known = micro_batch is not None and checkpointing is not None
    planned = Rung(micro_batch=micro_batch, gradient_checkpointing=checkpointing)
    return Ladder(
        planned=planned if known else None,
        rung=last.rung if last else None,
        short_in=await _short_in(conn, last) if last else None,
    )


async def _short_in(conn: AsyncConnection, generation: Generation) -> int | None:
    """The step in which memory ran out on some member of it; None: it did not."""
    c = nodes.c
    of_it = (c.attempt_id == generation.attempt_id) & (c.generation == generation.number)
    query = select(func.max(c.step)).where(of_it, c.out_of_memory)
    done: int | None = (await conn.execute(query)).scalar_one()
    return None if done is None else done + 1


async def current(conn: AsyncConnection, attempt_id: str) -> Opened | None:
    """The attempt's newest generation."""
    query = (
        select(generations)
        .where(generations.c.attempt_id == attempt_id)
        .order_by(generations.c.number.desc())
        .limit(1)
    )
    row = (await conn.execute(query)).one_or_none()
    return _opened(row) if row else None


async def of_job(conn: AsyncConnection, job_id: str) -> list[Opened]:
    """Every generation of the job, oldest first."""
    query = select(generations).where(generations.c.job_id == job_id)
    return [_opened(row) for row in await conn.execute(query.order_by(generations.c.number))]


async def without_news(
    conn: AsyncConnection, attempt_id: str, newest: str | None
) -> list[Generation]:
    """The attempt's generations that loaded the checkpoint at ``newest``, still the newest."""
    loaded = generations.c.content["checkpoint"]["path"].astext
    same = loaded.is_(None) if newest is None else loaded == newest
    query = select(generations.c.content).where(generations.c.attempt_id == attempt_id, same)
    return [Generation.from_dict(c) for c in (await conn.execute(query)).scalars()]


async def of_attempt(conn: AsyncConnection, attempt_id: str) -> list[Opened]:
    """Every generation of the attempt, oldest first."""
    query = select(generations).where(generations.c.attempt_id == attempt_id)
    return [_opened(row) for row in await conn.execute(query.order_by(generations.c.number))]


async def add(conn: AsyncConnection, generation: Generation, now: datetime) -> int:
    """Write the row; its number must be free (the primary key says so).

    Returns how many steps it does again: those that the one before had done, as far as its nodes
    had told, beyond the checkpoint that this one loads.
    """
    start = generation.checkpoint.step if generation.checkpoint else 0
    lost = max(await _reached(conn, generation.job_id) - start, 0)
    row = {"job_id": generation.job_id, "number": generation.number, "opened_at": now}
    row |= {"attempt_id": generation.attempt_id, "content": generation.to_plain()}
    await conn.execute(insert(generations).values(row | {"lost_steps": lost}))
    return lost


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


async def _reached(conn: AsyncConnection, job_id: str) -> int:
    """The last step that the job's newest generation is known to have done."""
    c, m, n = generations.c, metrics.c, nodes.c
    newest = (
        select(c.number, c.attempt_id)
        .where(c.job_id == job_id)
        .order_by(c.number.desc())
        .limit(1)
        .subquery()
    )
    measured = select(func.max(m.step)).where(m.job_id == job_id, m.generation == newest.c.number)
    told = select(func.max(n.step)).where(
        n.attempt_id == newest.c.attempt_id, n.generation == newest.c.number
    )
    query = select(func.greatest(measured.scalar_subquery(), told.scalar_subquery()))
    return (await conn.execute(query.select_from(newest))).scalar_one_or_none() or 0


def _opened(row: Row[Any]) -> Opened:
    return Opened(
        generation=Generation.from_dict(row.content),
        opened_at=row.opened_at,
        halted_at=row.halted_at,
        halt_kind=DirectiveKind(row.halt_kind) if row.halt_kind else None,
        halt_reason=row.halt_reason or "",
        lost_steps=row.lost_steps,
    )
