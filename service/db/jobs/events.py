"""Read and write events of jobs, in sentences; a move is written together with its event.

An event raises the job's version, which pollers compare and wait for.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.jobs import job_versions
from service.db.schema.tables import events
from service.domain.ids import new_id
from service.domain.states import AttemptState

MAX_PER_CODE = 1000  # events of one code that nodes report of one job
_MOVE_PREFIX = "attempt."  # prefix of codes; the state follows
# A literal, not a parameter: its index is partial.
_ABOUT_HELP = text("code in ('attempt.needs_help', 'attempt.help_over')")
_COLUMNS = ("id", "job_id", "attempt_id", "at", "level", "code", "message")
_ADD = text("""
insert into events (id, job_id, attempt_id, at, level, code, message, data)
select e.id, job_id, attempt_id, greatest(at, updated_at), level, code, message, data from unnest(
  cast(:ids as text[]), cast(:job_ids as text[]), cast(:attempt_ids as text[]),
  cast(:ats as timestamptz[]), cast(:levels as text[]), cast(:codes as text[]),
  cast(:messages as text[]), cast(:datas as jsonb[])
) with ordinality as e (id, job_id, attempt_id, at, level, code, message, data, nth)
join jobs on jobs.id = job_id order by nth
""")


@dataclass(frozen=True, kw_only=True)
class Event:
    """Row of an event."""

    id: str
    job_id: str
    attempt_id: str | None
    at: datetime
    level: str
    code: str
    message: str
    data: dict[str, Any] | None


def new_event(
    job_id: str,
    attempt_id: str | None,
    at: datetime,
    code: str,
    message: str,
    *,
    level: str = "info",
    data: dict[str, Any] | None = None,
) -> Event:
    """Return a new event for ``add_all``."""
    return Event(
        id=new_id("ftevent", at),
        job_id=job_id,
        attempt_id=attempt_id,
        at=at,
        level=level,
        code=code,
        message=message,
        data=data,
    )


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
    """Append an event and wake the job's watchers. Locks the job, so call it last.

    The lock comes before the write: a job's events are committed in the order of their numbers and
    times, so a reader that continues after the last one misses none.
    """
    at = await job_versions.raise_version(conn, job_id, now)
    row = {
        "id": new_id("ftevent", now),
        "job_id": job_id,
        "attempt_id": attempt_id,
        "at": at or now,
        "level": level,
        "code": code,
        "message": message,
        "data": data,
    }
    await conn.execute(insert(events).values(row))


async def add_all(conn: AsyncConnection, batch: Sequence[Event]) -> None:
    """Append events of many jobs, in this order. The caller has raised the jobs' versions."""
    if batch:
        columns = {f"{name}s": [getattr(e, name) for e in batch] for name in _COLUMNS}
        columns["datas"] = [None if e.data is None else json.dumps(e.data) for e in batch]
        await conn.execute(_ADD, columns)


async def has_event(conn: AsyncConnection, job_id: str, code: str, data: dict[str, Any]) -> bool:
    """Return whether the job has an event of this code that contains ``data``."""
    c = events.c
    query = select(c.id).where(c.job_id == job_id, c.code == code, c.data.contains(data))
    return (await conn.execute(query.limit(1))).first() is not None


async def is_limit_reached(conn: AsyncConnection, job_id: str, code: str) -> bool:
    """Return whether the job has ``MAX_PER_CODE`` events of this code: add no more."""
    c = events.c
    query = select(c.id).where(c.job_id == job_id, c.code == code).offset(MAX_PER_CODE - 1)
    return (await conn.execute(query.limit(1))).first() is not None


async def newest_of_help(conn: AsyncConnection, job_id: str) -> Event | None:
    """Return the job's newest call for help or the event that ends it; None if neither."""
    query = select(events).where(events.c.job_id == job_id, _ABOUT_HELP)
    row = (await conn.execute(query.order_by(events.c.seq.desc()).limit(1))).mappings().first()
    return _event(row) if row else None


async def moves(conn: AsyncConnection, job_id: str) -> dict[str, dict[AttemptState, datetime]]:
    """Return when each attempt of the job entered each state, except its first."""
    c = events.c
    codes = {f"{_MOVE_PREFIX}{state}": state for state in AttemptState}
    query = select(c.attempt_id, c.code, c.at).where(c.job_id == job_id, c.code.in_(codes))
    entered_at: dict[str, dict[AttemptState, datetime]] = {}
    for row in await conn.execute(query.order_by(c.seq)):
        entered_at.setdefault(row.attempt_id, {})[codes[row.code]] = row.at
    return entered_at


async def newest(
    conn: AsyncConnection, job_id: str, *, after: str | None, limit: int
) -> list[Event] | None:
    """Return events newest first, older than ``after``; None if the job has no such event."""
    query = select(events).where(events.c.job_id == job_id)
    if after is not None:
        cursor = select(events.c.seq).where(events.c.job_id == job_id, events.c.id == after)
        seq = (await conn.execute(cursor)).scalar_one_or_none()
        if seq is None:
            return None
        query = query.where(events.c.seq < seq)
    rows = await conn.execute(query.order_by(events.c.seq.desc()).limit(limit))
    return [_event(r) for r in rows.mappings()]


async def following(
    conn: AsyncConnection, job_id: str, *, after: str | None, limit: int
) -> list[Event] | None:
    """Return events oldest first, newer than ``after``; None if the job has no such event."""
    query = select(events).where(events.c.job_id == job_id)
    if after is not None:
        cursor = select(events.c.seq).where(events.c.job_id == job_id, events.c.id == after)
        seq = (await conn.execute(cursor)).scalar_one_or_none()
        if seq is None:
            return None
        query = query.where(events.c.seq > seq)
    rows = await conn.execute(query.order_by(events.c.seq).limit(limit))
    return [_event(r) for r in rows.mappings()]


def _event(row: Any) -> Event:  # noqa: ANN401 - a row mapping
    return Event(**{k: v for k, v in row.items() if k != "seq"})
