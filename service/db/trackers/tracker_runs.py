"""Read and write runs in experiment trackers: when they are due, and the last step sent."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, insert, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.jobs.step_metrics import StepRange, series
from service.db.schema.tables import metrics
from service.db.schema.tracker_tables import tracker_runs

_T = tracker_runs.c
_COLUMNS = [_T.job_id, _T.kind, _T.last_step, _T.url, _T.due_at, _T.failing_since]


@dataclass(frozen=True, kw_only=True)
class TrackerRunRow:
    """Row of a run; ``due_at`` is the end of its claim, and identifies the claim."""

    job_id: str
    kind: str
    last_step: int
    url: str | None
    due_at: datetime
    failing_since: datetime | None


async def open_all(conn: AsyncConnection, job_id: str, kinds: Iterable[str], now: datetime) -> None:
    """Write a run of each kind for a new job."""
    if rows := [{"job_id": job_id, "kind": kind, "due_at": now} for kind in kinds]:
        await conn.execute(insert(tracker_runs), rows)


async def claim(
    conn: AsyncConnection, kind: str, now: datetime, life: timedelta, limit: int
) -> list[TrackerRunRow]:
    """Claim runs that are due: no other replica sees them for ``life``."""
    due = select(_T.job_id, _T.kind).where(~_T.closed, _T.due_at <= now, _T.kind == kind)
    locked = due.order_by(_T.due_at).limit(limit).with_for_update(skip_locked=True)
    if not (keys := [tuple(row) for row in await conn.execute(locked)]):
        return []
    statement = update(tracker_runs).where(tuple_(_T.job_id, _T.kind).in_(keys))
    claimed = await conn.execute(statement.values(due_at=now + life).returning(*_COLUMNS))
    return [TrackerRunRow(**row) for row in claimed.mappings()]


async def settle(conn: AsyncConnection, claimed: TrackerRunRow, **values: Any) -> bool:  # noqa: ANN401
    """Write the result of a claim; return False if another claim has followed."""
    c = claimed
    conditions = (_T.job_id == c.job_id, _T.kind == c.kind, _T.due_at == c.due_at, ~_T.closed)
    done = update(tracker_runs).where(*conditions).values(**values).returning(_T.kind)
    return (await conn.execute(done)).one_or_none() is not None


async def figures(
    conn: AsyncConnection, job_id: str, after: int, limit: int
) -> tuple[float, list[dict[str, Any]]]:
    """Return the seconds trained up to step ``after``, and the rows of the steps that follow."""
    m = metrics.c
    spent = select(func.coalesce(func.sum(m.seconds), 0.0)).where(
        m.job_id == job_id, m.step <= after
    )
    rows = await series(
        conn, job_id, StepRange(from_step=after + 1, to_step=2**31 - 1), limit=limit
    )
    return float((await conn.execute(spent)).scalar_one()), rows
