"""Record metrics and traces of moves, once they are committed.

The one replica that writes a move also observes it, so nothing is counted twice. Observations that
Prometheus has not scraped are lost with their process; state is read from the database instead.
"""

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from service import tracing
from service.db.attempts.attempt_moves import ClaimedAttemptMove
from service.db.attempts.attempts import AttemptRow
from service.db.core.leases import Claim
from service.domain.money import cost
from service.domain.reporting.timeline import TimelineSpan
from service.domain.states import JOB_TERMINAL, AttemptState, JobState
from service.instruments import (
    ATTEMPT_OUTCOMES,
    ATTEMPT_PHASE,
    ATTEMPT_STATE,
    JOB_STATE,
    JOBS_FINISHED,
    PAID,
    RECOVERY,
    SPENT,
    TRAINED,
)
from service.operations.attempts import attempt_records
from service.operations.attempts.attempt_records import AttemptRecord
from service.tracing import Component, FinishedPeriod

_SERVICE_PHASES = frozenset({"create", "allocate", "delete"})
_TRAINER_PHASES = frozenset({"first_validation", "first_step", "train", "export", "verify", "save"})


def observe_job_move(claim: Claim, to: JobState, now: datetime) -> None:
    """Observe one move of a job, as it was claimed."""
    row, seconds = claim.row, (now - claim.row.since).total_seconds()
    JOB_STATE.observe(row.state, value=seconds)
    if (row.state, to) == (JobState.RECOVERING, JobState.RUNNING):
        RECOVERY.observe(value=seconds)
    if to in JOB_TERMINAL:
        JOBS_FINISHED.add(to)
        facts = {"rekindle.job": row.id, "rekindle.state": str(to), "rekindle.model": row.model}
        period = FinishedPeriod(
            name="job", started_at=row.created_at, ended_at=now, attributes=facts
        )
        tracing.record_job(row.id, period)


def observe_attempt_moves(moves: Iterable[ClaimedAttemptMove], now: datetime) -> None:
    """Observe moves of attempts."""
    for move in moves:
        row, offering = move.row, move.row.offering
        seconds = (now - row.since).total_seconds()
        ATTEMPT_STATE.observe(row.state, offering.capacity_type, value=seconds)
        if move.step.outcome and row.outcome is None:
            labels = (offering.region, offering.vm_size, offering.capacity_type)
            ATTEMPT_OUTCOMES.add(move.step.outcome, *labels)


async def observe_attempt_end(engine: AsyncEngine, row: AttemptRow, now: datetime) -> None:
    """Observe the phases of an attempt that is over, its money, and its part of the trace.

    If the database is unavailable, only this observation is lost.
    """
    with suppress(SQLAlchemyError):
        async with engine.connect() as conn:
            records = await attempt_records.list_records(conn, row.job_id)
        for record in (r for r in records if r.row.id == row.id):
            _observe_phases(record, now)
            _record_spans(record, now)


def _observe_phases(record: AttemptRecord, now: datetime) -> None:
    capacity_type = record.row.offering.capacity_type
    sizes = {o.generation.number: len(o.generation.members) for o in record.generations}
    for entry in record.timeline:
        seconds = ((entry.ended_at or now) - entry.started_at).total_seconds()
        ATTEMPT_PHASE.observe(_phase_name(entry), value=seconds)
        if entry.name == "train":
            TRAINED.add(capacity_type, amount=max(seconds, 0.0) * sizes.get(entry.generation, 0))
    PAID.add(capacity_type, amount=float(cost.machine_hours(record.ledger, now)) * 3600)
    SPENT.add(capacity_type, amount=float(cost.machine_cost(record.ledger, now)))


def _record_spans(record: AttemptRecord, now: datetime) -> None:
    row, offering = record.row, record.row.offering
    facts: dict[str, str | int | float] = {
        "rekindle.attempt": row.id,
        "rekindle.attempt.number": row.number,
        "rekindle.attempt.outcome": str(row.outcome or ""),
        "rekindle.machines": row.instance_count,
        "cloud.region": offering.region,
        "rekindle.vm_size": offering.vm_size,
        "rekindle.capacity_type": str(offering.capacity_type),
    }
    period = FinishedPeriod(
        name="attempt", started_at=row.created_at, ended_at=now, attributes=facts
    )
    tracing.record_attempt(
        row.job_id, row.id, period, [_finished_period(e, now) for e in record.timeline]
    )


def _finished_period(entry: TimelineSpan, now: datetime) -> FinishedPeriod:
    facts = {"rekindle.generation": entry.generation} if entry.generation else {}
    return FinishedPeriod(
        name=_phase_name(entry),
        started_at=entry.started_at,
        ended_at=entry.ended_at or now,
        attributes=facts,
        component=_component(entry),
    )


def _phase_name(entry: TimelineSpan) -> str:
    """Return the phase's name; "other" for one that only a node knows."""
    return entry.name if entry.is_known else "other"


def _component(entry: TimelineSpan) -> Component:
    if entry.name in _SERVICE_PHASES:
        return Component.SERVICE
    is_trainers = entry.name in _TRAINER_PHASES or entry.name.startswith("load")
    return Component.TRAINER if is_trainers else Component.NODE


def is_final_move(move: ClaimedAttemptMove) -> bool:
    """Return whether an attempt that may have had machines has ended."""
    return move.step.to is AttemptState.ENDED and move.row.state is not AttemptState.PENDING
