"""What happened to a job, in sentences: one row per move, written with the move.

An event is news: it raises the job's version, which is what pollers compare and wait for.
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

MOST_OF_A_KIND = 1000  # of what nodes tell of one job
_MOVED = "attempt."  # and the state
# Spelt out, not bound: the index for it is partial.
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
    """One row."""

    id: str
    job_id: str
    attempt_id: str | None
    at: datetime
    level: str
    code: str
    message: str
    data: dict[str, Any] | None


def fresh(
    job_id: str,
    attempt_id: str | None,
    at: datetime,
    code: str,
    message: str,
    *,
    level: str = "info",
    data: dict[str, Any] | None = None,
) -> Event:
    """One to add."""
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
    """Append an event and wake whoever watches the job. Locks the job, so it comes last.

    Locked before it is written: a job's events are committed in the order of their numbers, so who
    reads on from the last one misses none, and none is dated before the one before it.
    """
    at = await job_versions.raise_one(conn, job_id, now)
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


async def add_all(conn: AsyncConnection, told: Sequence[Event]) -> None:
    """Append events of many jobs, in this order. The caller has raised the jobs' versions."""
    if told:
        columns = {f"{name}s": [getattr(e, name) for e in told] for name in _COLUMNS}
        columns["datas"] = [None if e.data is None else json.dumps(e.data) for e in told]
        await conn.execute(_ADD, columns)


async def known(conn: AsyncConnection, job_id: str, code: str, data: dict[str, Any]) -> bool:
    """Whether the job has an event of this code about these very facts."""
    c = events.c
    query = select(c.id).where(c.job_id == job_id, c.code == code, c.data.contains(data))
    return (await conn.execute(query.limit(1))).first() is not None


async def are_enough(conn: AsyncConnection, job_id: str, code: str) -> bool:
    """Whether the job has so many events of this code that another one helps nobody."""
    c = events.c
    query = select(c.id).where(c.job_id == job_id, c.code == code).offset(MOST_OF_A_KIND - 1)
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


async def following(
    conn: AsyncConnection, job_id: str, *, after: str | None, limit: int
) -> list[Event] | None:
    """Oldest first, newer than ``after``; None when there is no such event of this job."""
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
