"""Write moves of jobs between live states and to CANCELLED, in batches, each with its event.

Moves to SUCCEEDED and FAILED are written one by one, with more columns, in `jobs.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.core import locks, notify
from service.db.core.leases import Claim
from service.db.jobs import events
from service.db.jobs.events import Event
from service.db.queue import queue
from service.db.schema.columns import among
from service.db.schema.tables import jobs
from service.domain.errors import IllegalMove
from service.domain.ids import new_id
from service.domain.lifecycle.job import Job, MoveJob
from service.domain.states import JOB_MOVES, JobState

ALONE = (JobState.SUCCEEDED, JobState.FAILED)

_MOVE = text("""
with given as (
  select * from unnest(
    cast(:ids as text[]), cast(:tokens as text[]), cast(:before as text[]), cast(:after as text[]),
    cast(:reasons as text[]), cast(:hints as bigint[])
  ) as g (id, token, before, after, reason, hints)
), moved as (
  update jobs j set
    state = g.after, since = :now, reason = g.reason,
    started_at = case when g.after = 'running' then coalesce(started_at, :now) else started_at end,
    finished_at = case when g.after = 'cancelled' then cast(:now as timestamptz) end,
    trained_tokens = case when g.after = 'cancelled'
      then (select sum(tokens) from metrics m where m.job_id = j.id) else trained_tokens end,
    version = version + 1, updated_at = greatest(updated_at, :now),
    lease_token = null, lease_expires_at = null, due_at = :now
  from given g
  where j.id = g.id and j.lease_token = g.token and j.state = g.before
    and (g.after <> 'cancelled' or j.hints = g.hints)
  returning j.id
)
select id, pg_notify(:channel, 'job:' || id) from moved
""")


@dataclass(frozen=True, kw_only=True)
class ClaimedJobMove:
    """One job's move, under its lease."""

    claim: Claim
    job: Job
    step: MoveJob


async def move_all(
    conn: AsyncConnection, moving: Sequence[ClaimedJobMove], now: datetime
) -> set[str]:
    """Write moves with their events; return the jobs that were moved.

    A move is not written if the lease was lost, nor a move to CANCELLED if the job got a hint since
    its claim: the job may have money again, and is decided anew.
    """
    for one in moving:
        if one.step.to not in JOB_MOVES[one.job.state] or one.step.to in ALONE:
            raise IllegalMove("job", one.job.state, one.step.to)
    given: dict[str, list[Any]] = {
        "ids": [one.job.id for one in moving],
        "tokens": [one.claim.token for one in moving],
        "before": [one.claim.row.state for one in moving],
        "after": [str(one.step.to) for one in moving],
        "reasons": [one.step.reason for one in moving],
        "hints": [one.claim.hints for one in moving],
    }
    leased = among(jobs.c.lease_token, given["tokens"])
    await locks.before_writing(conn, jobs, given["ids"], leased)
    rows = await conn.execute(_MOVE, given | {"now": now, "channel": notify.CHANNEL})
    done = set(rows.scalars())
    moved = [one for one in moving if one.job.id in done]
    await queue.drop_admissions(conn, [(one.job.id, one.job.state, one.step.to) for one in moved])
    await events.add_all(conn, [_event(one, now) for one in moved])
    if moved:
        await notify.notify(conn, notify.DUE)
    return done


def _event(one: ClaimedJobMove, now: datetime) -> Event:
    step = one.step
    return Event(
        id=new_id("ftevent", now),
        job_id=one.job.id,
        attempt_id=None,
        at=now,
        level="info",
        code=f"job.{step.to}",
        message=f"Job {step.to}" + (f": {step.reason}" if step.reason else ""),
        data=None,
    )
