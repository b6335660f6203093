"""Requeue delay of an attempt that trains or saves: long, because changes wake it by themselves.

Commits, eviction notices and user requests hint the attempt, and so does the list of all scale sets
when a machine is gone. Only a silent node sends no hint: so the attempt is requeued at the latest
when the silence limit of its quietest node ends.
"""

from datetime import datetime, timedelta

from service.db.attempts.attempts import AttemptRow
from service.domain.lifecycle.attempt import AttemptTiming, AttemptView
from service.domain.lifecycle.generation import HaltGeneration
from service.domain.states import AttemptState
from service.reconciler.attempts.observer import ObservedAttempt
from trainer.contract import DirectiveKind, NodePhase

POLLS = 6  # longest delay, in poll intervals
_MOMENT = timedelta(seconds=0.1)


def while_running(
    row: AttemptRow, found: ObservedAttempt, pace: AttemptTiming, now: datetime
) -> timedelta | None:
    """Return the requeue delay of a healthy running attempt; None: poll as usual.

    None while a machine is missing, a stop is requested, or anything else is to be done soon.
    """
    seen = found.seen
    if row.state is not AttemptState.RUNNING or found.attempt.stop_as or found.faults or found.call:
        return None
    if row.stop_by is not None or seen.halted_at or not _whole(row, seen):
        return None
    assert seen.heard_at is not None, "a generation has members"
    left = seen.heard_at + pace.silence - now
    return max(min(POLLS * pace.poll, left), pace.poll)


def while_stopping(
    seen: AttemptView, step: HaltGeneration, pace: AttemptTiming, now: datetime
) -> timedelta:
    """Return the requeue delay while members stop: each reports by itself once it has stopped.

    At the latest it ends with the time that members have to stop, `settle` or `save` of ``pace``.
    """
    allowed = pace.settle if step.kind is DirectiveKind.STOP else pace.save
    told = seen.halted_at if seen.halt_kind is step.kind else None
    left = seen.wait_start(told or now) + allowed - now
    return min(pace.poll, max(left, timedelta()) + _MOMENT)


def _whole(row: AttemptRow, seen: AttemptView) -> bool:
    """Return whether every machine is present and trains in the current generation."""
    if seen.generation is None or seen.heard_at is None or seen.model_committed:
        return False
    number, members = seen.generation.number, {m.node_id for m in seen.generation.members}
    busy = [
        n.present and not n.evicting and n.phase is NodePhase.RUNNING and n.generation == number
        for n in seen.nodes
        if n.node_id in members
    ]
    return len(busy) == row.instance_count == seen.running_instances and all(busy)
