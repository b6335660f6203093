"""What happened to a job, in sentences: one row per move, written with the move.

An event is news: it raises the job's version, which is what pollers compare and wait for.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db import versions
from service.db.tables import events
from service.domain.ids import new_id
from service.domain.states import AttemptState

_MOVED = "attempt."  # and the state
# Spelt out, not bound: the index for it is partial.
_ABOUT_HELP = text("code in ('attempt.needs_help', 'attempt.help_over')")


@dataclass(frozen=True, kw_only=True)
class Event:
    """One row."""

    id: str
    job_id: str
    attempt_id: str | None
    at: datetime
    level: str
    code: str
    message: str
    data: dict[str, Any] | None


async def add(
    conn: AsyncConnection,
    job_id: str,
    now: datetime,
    code: str,
    message: str,
    *,
    attempt_id: str | None = None,
    level: str = "info",
    data: dict[str, Any] | None = None,
) -> None:
    """Append an event and wake whoever watches the job. Locks the job, so it comes last."""
    row = {
        "id": new_id("ftevent", now),
        "job_id": job_id,
        "attempt_id": attempt_id,
        "at": now,
        "level": level,
        "code": code,
        "message": message,
        "data": data,
    }
    await conn.execute(insert(events).values(row))
    await versions.raise_one(conn, job_id, now)


async def last_at(conn: AsyncConnection, job_id: str, code: str) -> datetime | None:
    """When the job's newest event of this code was written; None when there is none."""
    query = select(events.c.at).where(events.c.job_id == job_id, events.c.code == code)
    newest = query.order_by(events.c.seq.desc()).limit(1)
    return (await conn.execute(newest)).scalar_one_or_none()


async def known(conn: AsyncConnection, job_id: str, code: str, data: dict[str, Any]) -> bool:
    """Whether the job has an event of this code about these very facts."""
    c = events.c
    query = select(c.id).where(c.job_id == job_id, c.code == code, c.data.contains(data))
    return (await conn.execute(query.limit(1))).first() is not None


async def newest_of_help(conn: AsyncConnection, job_id: str) -> Event | None:
    """The job's newest call for help, or that it is over; None when there was none."""
    query = select(events).where(events.c.job_id == job_id, _ABOUT_HELP)
    row = (await conn.execute(query.order_by(events.c.seq.desc()).limit(1))).mappings().first()
    return _event(row) if row else None


async def moves(conn: AsyncConnection, job_id: str) -> dict[str, dict[AttemptState, datetime]]:
    """When each attempt of the job came into each state, but for the first."""
    c = events.c
    codes = {f"{_MOVED}{state}": state for state in AttemptState}
    query = select(c.attempt_id, c.code, c.at).where(c.job_id == job_id, c.code.in_(codes))
    found: dict[str, dict[AttemptState, datetime]] = {}
    for row in await conn.execute(query.order_by(c.seq)):
        found.setdefault(row.attempt_id, {})[codes[row.code]] = row.at
    return found


async def newest(
    conn: AsyncConnection, job_id: str, *, after: str | None, limit: int
) -> list[Event] | None:
    """Newest first, older than ``after``; None when there is no such event of this job."""
    query = select(events).where(events.c.job_id == job_id)
    if after is not None:
        cursor = select(events.c.seq).where(events.c.job_id == job_id, events.c.id == after)
        seq = (await conn.execute(cursor)).scalar_one_or_none()
        if seq is None:
            return None
        query = query.where(events.c.seq < seq)
    rows = await conn.execute(query.order_by(events.c.seq.desc()).limit(limit))
    return [_event(r) for r in rows.mappings()]


def _event(row: Any) -> Event:  # noqa: ANN401 - a row mapping
    return Event(**{k: v for k, v in row.items() if k != "seq"})
