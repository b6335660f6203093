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
    conn: AsyncConnection, moves: Sequence[ClaimedJobMove], now: datetime
) -> set[str]:
    """Write moves with their events; return the jobs that were moved.

    A move is not written if the lease was lost, nor a move to CANCELLED if the job got a hint since
    its claim: the job may have money again, and is decided anew.
    """
    for move in moves:
        if move.step.to not in JOB_MOVES[move.job.state] or move.step.to in ALONE:
            raise IllegalMove("job", move.job.state, move.step.to)
    parameters: dict[str, list[Any]] = {
        "ids": [move.job.id for move in moves],
        "tokens": [move.claim.token for move in moves],
        "before": [move.claim.row.state for move in moves],
        "after": [str(move.step.to) for move in moves],
        "reasons": [move.step.reason for move in moves],
        "hints": [move.claim.hints for move in moves],
    }
    leased = among(jobs.c.lease_token, parameters["tokens"])
    await locks.before_writing(conn, jobs, parameters["ids"], leased)
    rows = await conn.execute(_MOVE, parameters | {"now": now, "channel": notify.CHANNEL})
    done = set(rows.scalars())
    moved = [move for move in moves if move.job.id in done]
    await queue.drop_admissions(
        conn, [(move.job.id, move.job.state, move.step.to) for move in moved]
    )
    await events.add_all(conn, [_event(move, now) for move in moved])
    if moved:
        await notify.notify(conn, notify.DUE)
    return done


def _event(move: ClaimedJobMove, now: datetime) -> Event:
    step = move.step
    return Event(
        id=new_id("ftevent", now),
        job_id=move.job.id,
        attempt_id=None,
        at=now,
        level="info",
        code=f"job.{step.to}",
        message=f"Job {step.to}" + (f": {step.reason}" if step.reason else ""),
        data=None,
    )
