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

_EXPECTED_OUTCOMES = (None, Outcome.SUCCEEDED, Outcome.CANCELLED, Outcome.PAUSED)

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

_RECORD_SURVIVED = text("""
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
        is_eviction = self.step.outcome is Outcome.EVICTED
        return is_eviction and self.row.state in ATTEMPT_WITH_NODES


async def move(
    conn: AsyncConnection, claim: Claim, row: AttemptRow, step: MoveAttempt, now: datetime
) -> None:
    """Write one move with its event, and wake the job.

    Raises IllegalMove if the tables do not allow the move, LeaseLost if the lease is gone.
    """
    if not await move_all(conn, [ClaimedAttemptMove(claim=claim, row=row, step=step)], now):
        raise LeaseLost(f"attempts {row.id}")


async def move_all(
    conn: AsyncConnection, moves: Sequence[ClaimedAttemptMove], now: datetime
) -> set[str]:
    """Write these moves with their events; return the attempts whose lease still held."""
    for move in moves:
        if move.step.to not in ATTEMPT_MOVES[move.row.state]:
            raise IllegalMove("attempt", move.row.state, move.step.to)
    evictions = await count_evictions(conn, [move.row for move in moves if move.counts])
    done = await _write(conn, moves, evictions, now)
    moved = [move for move in moves if move.row.id in done]
    if not moved:
        return done
    await job_versions.raise_all(conn, [move.row.job_id for move in moved], now, due=True)
    await events.add_all(conn, [_event(move, now) for move in moved])
    # After jobs: starting a job locks in this order too.
    await _record_capacity_outcomes(conn, moved, now)
    await notify.notify(conn, notify.DUE)
    return done


async def count_evictions(
    conn: AsyncConnection, rows: Sequence[AttemptRow]
) -> dict[str, tuple[int, int]]:
    """Return how many machines each attempt lost to evictions: with notice, and without."""
    if not rows:
        return {}
    evictions = {}
    for row in await conn.execute(_LOST, {"ids": [row.id for row in rows]}):
        present, noticed = set(row.vm_ids), set(row.noticed)
        machine_count = row.billed or row.instance_count  # an elastic job may begin with fewer
        evictions[row.id] = (
            len(noticed),
            max(machine_count - len(present) - len(noticed - present), 0),
        )
    return evictions


async def record_survived_evictions(
    conn: AsyncConnection, survivors: Sequence[tuple[AttemptRow, datetime]]
) -> None:
    """Count an eviction of attempts that go on, with the time when it became known.

    The caller has locked the attempts.
    """
    if not survivors:
        return
    evictions = await count_evictions(conn, [row for row, _ in survivors])
    parameters = {
        "ids": [row.id for row, _ in survivors],
        "ats": [at for _, at in survivors],
        "noticed": [evictions[row.id][0] for row, _ in survivors],
        "unnoticed": [evictions[row.id][1] for row, _ in survivors],
    }
    await conn.execute(_RECORD_SURVIVED, parameters)


async def _write(
    conn: AsyncConnection,
    moves: Sequence[ClaimedAttemptMove],
    evictions: dict[str, tuple[int, int]],
    now: datetime,
) -> set[str]:
    counted = [evictions.get(move.row.id, (None, None)) for move in moves]
    parameters: dict[str, list[Any]] = {
        "ids": [move.row.id for move in moves],
        "tokens": [move.claim.token for move in moves],
        "before": [move.claim.row.state for move in moves],
        "after": [str(move.step.to) for move in moves],
        "outcomes": [move.step.outcome and str(move.step.outcome) for move in moves],
        "reasons": [move.step.reason for move in moves],
        "noticed": [noticed for noticed, _ in counted],
        "unnoticed": [unnoticed for _, unnoticed in counted],
    }
    leased = among(attempts.c.lease_token, parameters["tokens"])
    await locks.before_writing(conn, attempts, parameters["ids"], leased)
    return set((await conn.execute(_MOVE, parameters | {"now": now})).scalars())


async def _record_capacity_outcomes(
    conn: AsyncConnection, moved: Sequence[ClaimedAttemptMove], now: datetime
) -> None:
    """Record for all jobs whether Azure gave machines of an offering, or had none."""
    for move in sorted(moved, key=lambda m: m.row.offering):  # all lock them in one order
        if move.step.to is AttemptState.STARTING:
            await capacity_outages.end(conn, move.row.offering)
        elif (move.step.to, move.step.outcome) == (AttemptState.TERMINATING, Outcome.NO_CAPACITY):
            row, why = move.row, move.step.reason
            nodes, requested_at = row.instance_count, row.created_at
            await capacity_outages.note(conn, row.offering, nodes, why, requested_at, now)


def _event(move: ClaimedAttemptMove, now: datetime) -> Event:
    row, step = move.row, move.step
    warns = step.to is AttemptState.TERMINATING and step.outcome not in _EXPECTED_OUTCOMES
    return events.new_event(
        row.job_id,
        row.id,
        now,
        f"attempt.{step.to}",
        _event_message(row, step),
        level="warn" if warns else "info",
        data={"outcome": step.outcome, "reason": step.reason} if step.outcome else None,
    )


def _event_message(row: AttemptRow, step: MoveAttempt) -> str:
    subject = f"Attempt {row.number}"
    requested_machines = f"{row.instance_count} x {row.offering}"
    match step.to:
        case AttemptState.PROVISIONING:
            return f"{subject}: asking Azure for {requested_machines}"
        case AttemptState.STARTING:
            machines = step.reason or humanize.count_machines(row.instance_count)
            return f"{subject}: Azure has given {machines}; booting"
        case AttemptState.RUNNING:
            return f"{subject}: training"
        case AttemptState.TERMINATING:
            return f"{subject}: {str(step.outcome).replace('_', ' ')} - {step.reason}"
        case _ if row.state is AttemptState.PENDING:
            return f"{subject}: ended before any machine was asked for"
        case _:
            return f"{subject}: its scale set is gone, cost is final"
