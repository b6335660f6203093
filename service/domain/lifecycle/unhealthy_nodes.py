"""Machines whose nodes say that a GPU or link is broken: which go, and whether others are awaited.

They are deleted as soon as no trainer runs on them. A job of a fixed size waits for others in their
place, an elastic one goes on with the rest. Both waits and replacements are bounded. Pure.
"""

from collections.abc import Sequence

from service.domain.lifecycle.attempt import Attempt, Move, Seen
from service.domain.lifecycle.generation import NodeView
from service.domain.states import TIME_LIMITS, AttemptState, Outcome
from trainer.contract import NodePhase

MAX_UNHEALTHY = 3  # machines of one attempt: then it is no accident
_WAIT, _ = TIME_LIMITS[AttemptState.STARTING]  # as long as any machine may take to join


def to_delete(seen: Seen) -> tuple[str, ...]:
    """The vm_ids of unhealthy machines that exist and on which no trainer runs."""
    idle = (n for n in seen.nodes if n.unhealthy and n.phase is not NodePhase.RUNNING)
    return tuple(n.vm_id for n in idle if n.present)


def awaited(nodes: Sequence[NodeView]) -> int:
    """How many machines may yet come in place of unhealthy ones; 0 once there were too many."""
    if is_enough(nodes):
        return 0
    return sum(n.unhealthy_for is not None and n.unhealthy_for <= _WAIT for n in nodes)


def is_enough(nodes: Sequence[NodeView]) -> bool:
    """True when so many machines of the attempt were unhealthy that no other is asked for."""
    return sum(n.unhealthy for n in nodes) >= MAX_UNHEALTHY


def end_of(attempt: Attempt, seen: Seen) -> Move | None:
    """How an attempt ends that lacks machines because they were unhealthy; None: for others."""
    count = sum(n.unhealthy for n in seen.nodes)
    healthy = seen.running_instances - len(to_delete(seen))
    if not count or attempt.instance_count - healthy > count or any(n.evicting for n in seen.nodes):
        return None
    if is_enough(seen.nodes):
        why, outcome = f"{count} unhealthy machines in one attempt", Outcome.UNRESPONSIVE
    else:
        minutes = int(_WAIT.total_seconds() // 60)
        why = f"no healthy machine came in place of an unhealthy one within {minutes} min"
        outcome = Outcome.NO_CAPACITY
    return Move(to=AttemptState.TERMINATING, outcome=outcome, reason=why)
