"""Decide when an attempt requests replacement machines, and which to delete first. Pure."""

from datetime import datetime, timedelta

from service.domain.cloud.fleet import ScaleSetPhase
from service.domain.lifecycle import unhealthy_nodes
from service.domain.lifecycle.attempt import Attempt, AttemptTiming, AttemptView
from service.domain.lifecycle.elastic import is_request_worthwhile, largest_count
from service.domain.lifecycle.generation import continuing_count, is_finished
from service.domain.lifecycle.job import attempt_backoff
from service.domain.states import TIME_LIMITS, AttemptState

_TO_DELETE = timedelta(minutes=2)  # until a machine that is to go is asked for again


def is_backoff_over(attempt: Attempt, now: datetime) -> bool:
    """Return whether Azure may be asked again; the backoff grows with each refill."""
    pause = attempt_backoff(attempt.refills, 0)
    return attempt.refilled_at is None or now - attempt.refilled_at >= pause


def useless_machines(
    attempt: Attempt, seen: AttemptView, now: datetime, pace: AttemptTiming
) -> tuple[str, ...]:
    """Return machines that are unhealthy, never joined or hang: they cost money for nothing.

    No replacement is requested while they exist. Azure takes a while to delete them.
    """
    if seen.blind or (attempt.refilled_at and now - attempt.refilled_at < _TO_DELETE):
        return ()
    if ill := unhealthy_nodes.machines_to_delete(seen):
        return ill
    if attempt.elastic is None or seen.scale_set is None or seen.generation is None:
        return ()
    allowed, _ = TIME_LIMITS[AttemptState.STARTING]
    of_use = {m.vm_id for m in seen.generation.members}
    of_use |= {n.vm_id for n in seen.nodes if n.quiet <= pace.silence}
    return tuple(
        i.vm_id
        for i in seen.scale_set.instances
        if i.running and i.vm_id and i.vm_id not in of_use
        if i.created_at and now - seen.excused(i.created_at) > allowed
    )


def is_refill_due(attempt: Attempt, seen: AttemptView, now: datetime) -> bool:
    """Return whether machines are missing, none is on its way, and one more is useful."""
    elastic, found = attempt.elastic, seen.scale_set
    if found is None or seen.blind or attempt.stop_as or unhealthy_nodes.has_too_many(seen.nodes):
        return False
    quiet = found.phase in (ScaleSetPhase.READY, ScaleSetPhase.FAILED)
    if not quiet or seen.running_instances >= attempt.instance_count:
        return False
    if not is_backoff_over(attempt, now):
        return False
    if elastic is None:
        return unhealthy_nodes.awaited_replacements(seen.nodes) > 0
    if seen.generation is None:
        return True
    if is_finished(seen.generation, seen.nodes):
        return False
    left = largest_count(elastic.node_counts, continuing_count(seen.generation, seen.nodes))
    full = attempt.instance_count
    return left > 0 and is_request_worthwhile(elastic.batch, left, full, seen.outlook)
