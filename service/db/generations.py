"""Generation rows: written once; only the wish to halt one is added later."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.tables import generations, metrics, nodes
from trainer.contract import DirectiveKind, Generation

_HALT = text("""
with given as (
  select * from unnest(
    cast(:jobs as text[]), cast(:numbers as int[]), cast(:kinds as text[]), cast(:reasons as text[])
  ) as h (job_id, number, kind, reason)
), mine as (
  select g.job_id, g.number, h.kind, h.reason
  from generations g join given h on h.job_id = g.job_id and h.number = g.number
  where g.halted_at is null or (g.halt_kind <> h.kind and h.kind = :stop)
  order by g.job_id, g.number for no key update of g
)
update generations g set halted_at = :now, halt_kind = mine.kind, halt_reason = mine.reason
from mine where g.job_id = mine.job_id and g.number = mine.number returning g.job_id
""")


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


async def current(conn: AsyncConnection, attempt_id: str) -> Opened | None:
    """The attempt's newest generation."""
    query = (
        select(generations)
        .where(generations.c.attempt_id == attempt_id)
        .order_by(generations.c.number.desc())
        .limit(1)
    )
    row = (await conn.execute(query)).one_or_none()
    return opened(row) if row else None


async def of_job(conn: AsyncConnection, job_id: str) -> list[Opened]:
    """Every generation of the job, oldest first."""
    query = select(generations).where(generations.c.job_id == job_id)
    return [opened(row) for row in await conn.execute(query.order_by(generations.c.number))]


async def of_attempt(conn: AsyncConnection, attempt_id: str) -> list[Opened]:
    """Every generation of the attempt, oldest first."""
    query = select(generations).where(generations.c.attempt_id == attempt_id)
    return [opened(row) for row in await conn.execute(query.order_by(generations.c.number))]


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
    conn: AsyncConnection, halts: Sequence[tuple[Generation, DirectiveKind, str]], now: datetime
) -> set[str]:
    """Remember since when, how and why each is told to stop; the jobs for which that is news.

    STOP is news after CHECKPOINT_AND_STOP, never the other way round.
    """
    given = {
        "jobs": [generation.job_id for generation, *_ in halts],
        "numbers": [generation.number for generation, *_ in halts],
        "kinds": [str(kind) for _, kind, _ in halts],
        "reasons": [reason for *_, reason in halts],
    }
    done = await conn.execute(_HALT, given | {"now": now, "stop": str(DirectiveKind.STOP)})
    return set(done.scalars())


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


def opened(row: Row[Any]) -> Opened:
    """What a row of the table says."""
    return Opened(
        generation=Generation.from_dict(row.content),
        opened_at=row.opened_at,
        halted_at=row.halted_at,
        halt_kind=DirectiveKind(row.halt_kind) if row.halt_kind else None,
        halt_reason=row.halt_reason or "",
        lost_steps=row.lost_steps,
    )
