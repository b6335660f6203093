"""When an attempt asks for machines in place of those it lost, and which it deletes first. Pure."""

from datetime import datetime, timedelta

from service.domain.cloud.fleet import ScaleSetPhase
from service.domain.lifecycle import unhealthy_nodes
from service.domain.lifecycle.attempt import Attempt, Pace, Seen
from service.domain.lifecycle.elastic import largest, worth_asking
from service.domain.lifecycle.generation import going_on, is_finished
from service.domain.lifecycle.job import pause_after
from service.domain.states import TIME_LIMITS, AttemptState

_TO_DELETE = timedelta(minutes=2)  # until a machine that is to go is asked for again


def has_paused(attempt: Attempt, now: datetime) -> bool:
    """True when Azure may be asked again; the pause grows with the number of refills."""
    pause = pause_after(attempt.refills, 0)
    return attempt.refilled_at is None or now - attempt.refilled_at >= pause


def useless(attempt: Attempt, seen: Seen, now: datetime, pace: Pace) -> tuple[str, ...]:
    """Machines that are unhealthy, never joined or hang: they cost money and train nothing.

    While they are there no other is asked for in their place. Azure takes a while to delete them.
    """
    if attempt.refilled_at and now - attempt.refilled_at < _TO_DELETE:
        return ()
    if ill := unhealthy_nodes.to_delete(seen):
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


def is_due(attempt: Attempt, seen: Seen, now: datetime) -> bool:
    """True when machines are missing, nothing is under way, and one more could be of use."""
    elastic, found = attempt.elastic, seen.scale_set
    if found is None or seen.blind or attempt.wish or unhealthy_nodes.is_enough(seen.nodes):
        return False
    quiet = found.phase in (ScaleSetPhase.READY, ScaleSetPhase.FAILED)
    if not quiet or seen.running_instances >= attempt.instance_count:
        return False
    if not has_paused(attempt, now):
        return False
    if elastic is None:
        return unhealthy_nodes.awaited(seen.nodes) > 0
    if seen.generation is None:
        return True
    if is_finished(seen.generation, seen.nodes):
        return False
    left = largest(elastic.node_counts, going_on(seen.generation, seen.nodes))
    full = attempt.instance_count
    return left > 0 and worth_asking(elastic.batch, left, full, seen.outlook)
