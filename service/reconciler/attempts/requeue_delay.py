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

MAX_DELAY_POLLS = 6  # longest delay, in poll intervals
_MARGIN = timedelta(seconds=0.1)


def while_running(
    row: AttemptRow, observed: ObservedAttempt, pace: AttemptTiming, now: datetime
) -> timedelta | None:
    """Return the requeue delay of a healthy running attempt; None: poll as usual.

    None while a machine is missing, a stop is requested, or anything else is to be done soon.
    """
    view = observed.view
    if (
        row.state is not AttemptState.RUNNING
        or observed.attempt.stop_as
        or observed.faults
        or observed.action_request
    ):
        return None
    if row.stop_by is not None or view.halted_at or not _is_fully_training(row, view):
        return None
    assert view.heard_at is not None, "a generation has members"
    remaining = view.heard_at + pace.silence - now
    return max(min(MAX_DELAY_POLLS * pace.poll, remaining), pace.poll)


def while_stopping(
    view: AttemptView, step: HaltGeneration, pace: AttemptTiming, now: datetime
) -> timedelta:
    """Return the requeue delay while members stop: each reports by itself once it has stopped.

    At the latest it ends with the time that members have to stop, `settle` or `save` of ``pace``.
    """
    allowed = pace.settle if step.kind is DirectiveKind.STOP else pace.save
    halted_at = view.halted_at if view.halt_kind is step.kind else None
    remaining = view.wait_start(halted_at or now) + allowed - now
    return min(pace.poll, max(remaining, timedelta()) + _MARGIN)


def _is_fully_training(row: AttemptRow, view: AttemptView) -> bool:
    """Return whether every machine is present and trains in the current generation."""
    if view.generation is None or view.heard_at is None or view.model_committed:
        return False
    number, members = view.generation.number, {m.node_id for m in view.generation.members}
    busy = [
        n.present and not n.evicting and n.phase is NodePhase.RUNNING and n.generation == number
        for n in view.nodes
        if n.node_id in members
    ]
    return len(busy) == row.instance_count == view.running_instances and all(busy)
