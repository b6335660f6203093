"""Write moves of attempts in batches: the only code that writes an attempt's state.

A move whose lease was lost meanwhile is not written; the others of its batch are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.attempts.attempts import AttemptRow
from service.db.core import locks, notify
from service.db.core.leases import Claim
from service.db.jobs import events, job_versions
from service.db.jobs.events import Event
from service.db.schema.columns import among
from service.db.schema.tables import attempts
from service.db.spot import capacity_outages
from service.domain import humanize
from service.domain.errors import IllegalMove, LeaseLost
from service.domain.lifecycle.attempt import MoveAttempt
from service.domain.states import ATTEMPT_MOVES, ATTEMPT_WITH_NODES, AttemptState, Outcome

_AS_WISHED = (None, Outcome.SUCCEEDED, Outcome.CANCELLED, Outcome.PAUSED)

_MOVE = text("""
with given as (
  select * from unnest(
    cast(:ids as text[]), cast(:tokens as text[]), cast(:before as text[]), cast(:after as text[]),
    cast(:outcomes as text[]), cast(:reasons as text[]),
    cast(:noticed as int[]), cast(:unnoticed as int[])
  ) as g (id, token, before, after, outcome, reason, noticed, unnoticed)
)
update attempts a set
  state = g.after, since = :now, outcome = g.outcome,
  reason = case when g.reason = '' then a.reason else g.reason end,
  over_at = case when g.outcome is not null then coalesce(a.over_at, :now) end,
  ended_at = case when g.after = 'ended' then cast(:now as timestamptz) end,
  ran_at = case when g.after = 'running' then :now else a.ran_at end,
  evicted_noticed = coalesce(g.noticed, a.evicted_noticed),
  evicted_unnoticed = coalesce(g.unnoticed, a.evicted_unnoticed),
  lease_token = null, lease_expires_at = null, due_at = :now,
  deferred_call = null, deferred_until = null
from given g
where a.id = g.id and a.lease_token = g.token and a.state = g.before
returning a.id
""")

# Counts replacement machines too: every machine has a row in the ledger.
_LOST = text("""
select a.id, a.vm_ids, a.instance_count,
  (select count(distinct vm_id) from ledger where attempt_id = a.id) as billed,
  array(select vm_id from nodes where attempt_id = a.id and evicting) as noticed
from attempts a where a.id = any(:ids)
""")

_OUTLIVE = text("""
update attempts a set survived = a.survived + 1, outlived = array_append(a.outlived, g.at),
  evicted_noticed = g.noticed, evicted_unnoticed = g.unnoticed
from unnest(
  cast(:ids as text[]), cast(:ats as timestamptz[]), cast(:noticed as int[]),
  cast(:unnoticed as int[])
) as g (id, at, noticed, unnoticed)
where a.id = g.id
""")


@dataclass(frozen=True, kw_only=True)
class ClaimedAttemptMove:
    """One attempt's move, under its lease."""

    claim: Claim
    row: AttemptRow
    step: MoveAttempt

    @property
    def counts(self) -> bool:
        """Return whether Azure took machines back with this move."""
        taken = self.step.outcome is Outcome.EVICTED
        return taken and self.row.state in ATTEMPT_WITH_NODES


async def move(
    conn: AsyncConnection, claim: Claim, row: AttemptRow, step: MoveAttempt, now: datetime
) -> None:
    """Write one move with its event, and wake the job.

    Raises IllegalMove if the tables do not allow the move, LeaseLost if the lease is gone.
    """
    if not await move_all(conn, [ClaimedAttemptMove(claim=claim, row=row, step=step)], now):
        raise LeaseLost(f"attempts {row.id}")


async def move_all(
    conn: AsyncConnection, moving: Sequence[ClaimedAttemptMove], now: datetime
) -> set[str]:
    """Write these moves with their events; return the attempts whose lease still held."""
    for one in moving:
        if one.step.to not in ATTEMPT_MOVES[one.row.state]:
            raise IllegalMove("attempt", one.row.state, one.step.to)
    lost = await count_evictions(conn, [one.row for one in moving if one.counts])
    done = await _write(conn, moving, lost, now)
    moved = [one for one in moving if one.row.id in done]
    if not moved:
        return done
    await job_versions.raise_all(conn, [one.row.job_id for one in moved], now, due=True)
    await events.add_all(conn, [_event(one, now) for one in moved])
    await _tell_of_capacity(conn, moved, now)  # after jobs: starting a job locks in this order too
    await notify.notify(conn, notify.DUE)
    return done


async def count_evictions(
    conn: AsyncConnection, rows: Sequence[AttemptRow]
) -> dict[str, tuple[int, int]]:
    """Return how many machines each attempt lost to evictions: with notice, and without."""
    if not rows:
        return {}
    found = {}
    for row in await conn.execute(_LOST, {"ids": [row.id for row in rows]}):
        present, noticed = set(row.vm_ids), set(row.noticed)
        had = row.billed or row.instance_count  # an elastic job may begin with fewer
        found[row.id] = (len(noticed), max(had - len(present) - len(noticed - present), 0))
    return found


async def record_survived_evictions(
    conn: AsyncConnection, went_on: Sequence[tuple[AttemptRow, datetime]]
) -> None:
    """Count an eviction of attempts that go on, with the time when it became known.

    The caller has locked the attempts.
    """
    if not went_on:
        return
    lost = await count_evictions(conn, [row for row, _ in went_on])
    given = {
        "ids": [row.id for row, _ in went_on],
        "ats": [at for _, at in went_on],
        "noticed": [lost[row.id][0] for row, _ in went_on],
        "unnoticed": [lost[row.id][1] for row, _ in went_on],
    }
    await conn.execute(_OUTLIVE, given)


async def _write(
    conn: AsyncConnection,
    moving: Sequence[ClaimedAttemptMove],
    lost: dict[str, tuple[int, int]],
    now: datetime,
) -> set[str]:
    counted = [lost.get(one.row.id, (None, None)) for one in moving]
    given: dict[str, list[Any]] = {
        "ids": [one.row.id for one in moving],
        "tokens": [one.claim.token for one in moving],
        "before": [one.claim.row.state for one in moving],
        "after": [str(one.step.to) for one in moving],
        "outcomes": [one.step.outcome and str(one.step.outcome) for one in moving],
        "reasons": [one.step.reason for one in moving],
        "noticed": [noticed for noticed, _ in counted],
        "unnoticed": [unnoticed for _, unnoticed in counted],
    }
    leased = among(attempts.c.lease_token, given["tokens"])
    await locks.before_writing(conn, attempts, given["ids"], leased)
    return set((await conn.execute(_MOVE, given | {"now": now})).scalars())


async def _tell_of_capacity(
    conn: AsyncConnection, moved: Sequence[ClaimedAttemptMove], now: datetime
) -> None:
    """Record for all jobs whether Azure gave machines of an offering, or had none."""
    for one in sorted(moved, key=lambda one: one.row.offering):  # all lock them in one order
        if one.step.to is AttemptState.STARTING:
            await capacity_outages.end(conn, one.row.offering)
        elif (one.step.to, one.step.outcome) == (AttemptState.TERMINATING, Outcome.NO_CAPACITY):
            row, why = one.row, one.step.reason
            nodes, asked = row.instance_count, row.created_at
            await capacity_outages.note(conn, row.offering, nodes, why, asked, now)


def _event(one: ClaimedAttemptMove, now: datetime) -> Event:
    row, step = one.row, one.step
    warns = step.to is AttemptState.TERMINATING and step.outcome not in _AS_WISHED
    return events.new_event(
        row.job_id,
        row.id,
        now,
        f"attempt.{step.to}",
        _sentence(row, step),
        level="warn" if warns else "info",
        data={"outcome": step.outcome, "reason": step.reason} if step.outcome else None,
    )


def _sentence(row: AttemptRow, step: MoveAttempt) -> str:
    which = f"Attempt {row.number}"
    where = f"{row.instance_count} x {row.offering}"
    match step.to:
        case AttemptState.PROVISIONING:
            return f"{which}: asking Azure for {where}"
        case AttemptState.STARTING:
            given = step.reason or humanize.count_machines(row.instance_count)
            return f"{which}: Azure has given {given}; booting"
        case AttemptState.RUNNING:
            return f"{which}: training"
        case AttemptState.TERMINATING:
            return f"{which}: {str(step.outcome).replace('_', ' ')} - {step.reason}"
        case _ if row.state is AttemptState.PENDING:
            return f"{which}: ended before any machine was asked for"
        case _:
            return f"{which}: its scale set is gone, cost is final"
