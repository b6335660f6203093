"""Decide about machines that report a broken GPU or link: which to delete, whether to wait.

They are deleted as soon as no trainer runs on them. A job of a fixed size waits for replacements,
an elastic one continues with the rest. Both waits and replacements are bounded. Pure.
"""

from collections.abc import Sequence

from service.domain.lifecycle.attempt import Attempt, AttemptView, MoveAttempt
from service.domain.lifecycle.generation import NodeView
from service.domain.states import TIME_LIMITS, AttemptState, Outcome
from trainer.contract import NodePhase

MAX_UNHEALTHY = 3  # machines of one attempt: then it is no accident
_WAIT, _ = TIME_LIMITS[AttemptState.STARTING]  # as long as any machine may take to join


def machines_to_delete(view: AttemptView) -> tuple[str, ...]:
    """Return the vm_ids of unhealthy machines that exist without a running trainer."""
    idle = (n for n in view.nodes if n.unhealthy and n.phase is not NodePhase.RUNNING)
    return tuple(n.vm_id for n in idle if n.present)


def awaited_replacements(nodes: Sequence[NodeView]) -> int:
    """Return how many replacements may still come; 0 after too many failures."""
    if has_too_many(nodes):
        return 0
    return sum(n.unhealthy_for is not None and n.unhealthy_for <= _WAIT for n in nodes)


def has_too_many(nodes: Sequence[NodeView]) -> bool:
    """Return whether too many machines were unhealthy to request another one."""
    return sum(n.unhealthy for n in nodes) >= MAX_UNHEALTHY


def unhealthy_end(attempt: Attempt, view: AttemptView) -> MoveAttempt | None:
    """Return the end of an attempt that lacks machines as they were unhealthy; else None."""
    count = sum(n.unhealthy for n in view.nodes)
    healthy = view.running_instances - len(machines_to_delete(view))
    if not count or attempt.instance_count - healthy > count or any(n.evicting for n in view.nodes):
        return None
    if has_too_many(view.nodes):
        why, outcome = f"{count} unhealthy machines in one attempt", Outcome.UNRESPONSIVE
    else:
        minutes = int(_WAIT.total_seconds() // 60)
        why = f"no healthy machine came in place of an unhealthy one within {minutes} min"
        outcome = Outcome.NO_CAPACITY
    return MoveAttempt(to=AttemptState.TERMINATING, outcome=outcome, reason=why)
