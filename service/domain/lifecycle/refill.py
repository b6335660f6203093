"""Decide when an attempt requests replacement machines, and which to delete first. Pure."""

from datetime import datetime, timedelta

from service.domain.cloud.fleet import ScaleSetPhase
from service.domain.lifecycle import unhealthy_nodes
from service.domain.lifecycle.attempt import Attempt, AttemptTiming, AttemptView
from service.domain.lifecycle.elastic import is_request_worthwhile, largest_count
from service.domain.lifecycle.generation import continuing_count, is_finished
from service.domain.lifecycle.job import attempt_backoff
from service.domain.states import TIME_LIMITS, AttemptState

_DELETION_TIME = timedelta(minutes=2)  # until a machine that is to go is asked for again


def is_backoff_over(attempt: Attempt, now: datetime) -> bool:
    """Return whether Azure may be asked again; the backoff grows with each refill."""
    pause = attempt_backoff(attempt.refills, 0)
    return attempt.refilled_at is None or now - attempt.refilled_at >= pause


def useless_machines(
    attempt: Attempt, view: AttemptView, now: datetime, pace: AttemptTiming
) -> tuple[str, ...]:
    """Return machines that are unhealthy, never joined or hang: they cost money for nothing.

    No replacement is requested while they exist. Azure takes a while to delete them.
    """
    if view.cloud_unreachable or (
        attempt.refilled_at and now - attempt.refilled_at < _DELETION_TIME
    ):
        return ()
    if unhealthy := unhealthy_nodes.machines_to_delete(view):
        return unhealthy
    if attempt.elastic is None or view.scale_set is None or view.generation is None:
        return ()
    allowed, _ = TIME_LIMITS[AttemptState.STARTING]
    useful_ids = {m.vm_id for m in view.generation.members}
    useful_ids |= {n.vm_id for n in view.nodes if n.quiet <= pace.silence}
    return tuple(
        i.vm_id
        for i in view.scale_set.instances
        if i.running and i.vm_id and i.vm_id not in useful_ids
        if i.created_at and now - view.wait_start(i.created_at) > allowed
    )


def is_refill_due(attempt: Attempt, view: AttemptView, now: datetime) -> bool:
    """Return whether machines are missing, none is on its way, and one more is useful."""
    elastic, scale_set = attempt.elastic, view.scale_set
    if (
        scale_set is None
        or view.cloud_unreachable
        or attempt.stop_as
        or unhealthy_nodes.has_too_many(view.nodes)
    ):
        return False
    is_settled = scale_set.phase in (ScaleSetPhase.READY, ScaleSetPhase.FAILED)
    if not is_settled or view.running_instances >= attempt.instance_count:
        return False
    if not is_backoff_over(attempt, now):
        return False
    if elastic is None:
        return unhealthy_nodes.awaited_replacements(view.nodes) > 0
    if view.generation is None:
        return True
    if is_finished(view.generation, view.nodes):
        return False
    continuing = largest_count(elastic.node_counts, continuing_count(view.generation, view.nodes))
    full = attempt.instance_count
    return continuing > 0 and is_request_worthwhile(elastic.batch, continuing, full, view.outlook)
