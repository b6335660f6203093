"""What to do about an attempt next: one rule for each of its states. Pure."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from service.domain import humanize
from service.domain.cloud.fleet import Failure, ScaleSet, ScaleSetPhase
from service.domain.lifecycle import refill, unhealthy_nodes
from service.domain.lifecycle.attempt import (
    EVER,
    FRUITLESS,
    HEAD_UNREADABLE,
    HOPELESS,
    JOINS,
    MAX_FRUITLESS,
    TOO_LONG_UNREADABLE,
    Attempt,
    Create,
    Delete,
    Move,
    OpenGeneration,
    Pace,
    Refill,
    Seen,
    Step,
    Wait,
)
from service.domain.lifecycle.elastic import STRAGGLERS, growth_pays, largest
from service.domain.lifecycle.generation import (
    Halt,
    Open,
    going_on,
    halt,
    is_finished,
    is_hopeless,
    is_settled,
    is_trainers_fault,
    joining,
    members_of,
    next_membership,
)
from service.domain.states import TIME_LIMITS, AttemptState, Outcome
from trainer.contract import DirectiveKind, Generation

MAX_TRAINER_ERRORS = 3  # in a row, without a newly committed checkpoint
_BEFORE_END = timedelta(hours=2)  # of what the engine allows: to save, with room for an outage
LONGEST_RUN = "Azure ML ends a job that has run for so long"
# Before the next generation, by how many in a row were fruitless: what fails at once fails often.
_PAUSES = tuple(timedelta(seconds=s) for s in (0, 0, 5, 10, 20, 40, 60))


def next_step(attempt: Attempt, seen: Seen, now: datetime, pace: Pace) -> Step:
    """Decide one step; the same arguments always give the same step."""
    if attempt.ends_by and not attempt.wish and now >= attempt.ends_by - _BEFORE_END:
        attempt = replace(attempt, wish=Outcome.EVICTED, because=LONGEST_RUN)
    return DECIDE[attempt.state](attempt, seen, now, pace)


def _pending(attempt: Attempt, seen: Seen, now: datetime, pace: Pace) -> Step:
    if attempt.wish:
        why = attempt.because or "before launch"
        return Move(to=AttemptState.ENDED, outcome=attempt.wish, reason=why)
    return Move(to=AttemptState.PROVISIONING)


def _provisioning(attempt: Attempt, seen: Seen, now: datetime, pace: Pace) -> Step:
    found, running = seen.scale_set, seen.running_instances
    if end := _cannot_boot(attempt, seen):
        return end  # those that are still to come would not, either
    if found is not None and not attempt.wish and _have_come(attempt, found, running):
        few = f"{running} of {attempt.instance_count} machines"
        return Move(  # however late: the machines are there
            to=AttemptState.STARTING, reason=few if running < attempt.instance_count else ""
        )
    if end := _wished(attempt) or _out_of_time(attempt, seen, now, pace):
        return end
    if found is None or found.phase is ScaleSetPhase.INCOMPLETE:
        return Wait() if seen.blind else Create()
    if found.phase is ScaleSetPhase.DELETING:
        return _end(Outcome.EVICTED, "the scale set is being deleted by somebody else")
    if found.phase is ScaleSetPhase.CREATING:
        return Wait()
    return _fill(attempt, found, running, now)


def _cannot_boot(attempt: Attempt, seen: Seen) -> Move | None:
    """How an attempt ends of which a machine has said that none can boot."""
    given_up = seen.cannot_boot and seen.generation is None and not attempt.wish
    return _end(Outcome.UNRESPONSIVE, seen.cannot_boot) if given_up else None


def _have_come(attempt: Attempt, found: ScaleSet, running: int) -> bool:
    """True when there are machines to start with: all, or enough for an elastic job.

    Whatever the set says: of one that has FAILED, by OSProvisioningTimedOut or an extension, all
    machines may run (CloudVE/cloudbridge issue 222, Azure/vm-scale-sets issue 82). Of one that is
    READY some may have been evicted already; but while they are refilled, too few are too few.
    """
    if found.phase is ScaleSetPhase.DELETING:
        return False
    elastic = attempt.elastic
    enough = running >= attempt.instance_count or (
        elastic is not None and largest(elastic.node_counts, running) > 0
    )
    return enough or (found.phase is ScaleSetPhase.READY and attempt.refilled_at is None)


def _fill(attempt: Attempt, found: ScaleSet, running: int, now: datetime) -> Step:
    """Keep the machines that have come and ask for the rest; without any, the failure decides."""
    why = f"{found.error_code}: {found.error_message}".strip(": ") or "provisioning failed"
    failed = found.phase is ScaleSetPhase.FAILED
    if failed and found.failure is Failure.MISCONFIGURED:
        return _end(Outcome.MISCONFIGURED, why)
    if failed and not running:
        none = found.failure is Failure.NO_CAPACITY
        return _end(Outcome.NO_CAPACITY if none else Outcome.PROVISIONING_FAILED, why)
    return Refill() if refill.has_paused(attempt, now) else Wait()


def _starting(attempt: Attempt, seen: Seen, now: datetime, pace: Pace) -> Step:
    if end := _cannot_boot(attempt, seen):
        return end
    step = _running(attempt, seen, now, pace)
    if isinstance(step, Move):
        return step
    if seen.stepped and isinstance(step, Wait | Refill):
        return Move(to=AttemptState.RUNNING)
    return _out_of_time(attempt, seen, now, pace) or step


def _running(attempt: Attempt, seen: Seen, now: datetime, pace: Pace) -> Step:
    """Training comes first; while it needs nothing, machines are asked for in place of lost ones.

    Members that have been told to stop need nothing either.
    """
    end = _out_of_money(attempt, seen, now, pace) or _in_vain(attempt, seen, now, pace)
    step = end or _train(attempt, seen, now, pace)
    told = isinstance(step, Halt) and step.kind is seen.halt_kind
    if told or isinstance(step, Wait):
        if useless := refill.useless(attempt, seen, now, pace):
            return Refill(useless)
        if refill.is_due(attempt, seen, now):
            return Refill()
    return step


def _train(attempt: Attempt, seen: Seen, now: datetime, pace: Pace) -> Step:
    """STARTING and RUNNING: keep one generation alive, or end for the right reason."""
    current = seen.generation
    if seen.model_committed:  # whatever else happened: the result is there
        return _end(Outcome.SUCCEEDED, "the final model is committed")
    finished = current is not None and is_finished(current, seen.nodes)
    if finished and attempt.wish is not Outcome.CANCELLED:  # HEAD is about to say so too
        return _silent(seen, now, pace) or Wait()
    if attempt.wish:
        return _wind_down(attempt, seen, now, pace)
    wanted = _wanted(attempt, seen)
    membership = next_membership(current, seen.nodes, wanted)
    if isinstance(membership, Halt):
        return _halt_or_move_on(membership, seen, now, pace)
    if current is not None and not is_settled(current, seen.nodes):
        grown = _grow(attempt, current, seen)
        ill = _silent(seen, now, pace)
        return ill or (_halt_or_move_on(grown, seen, now, pace) if grown else Wait())
    if not wanted:
        lost = _end(Outcome.EVICTED, _what_was_lost(attempt, seen))
        return unhealthy_nodes.end_of(attempt, seen) or lost
    if isinstance(membership, Open):
        return _open(attempt, membership, seen, now)
    return _silent(seen, now, pace) or Wait()


def _terminating(attempt: Attempt, seen: Seen, now: datetime, pace: Pace) -> Step:
    if seen.blind:
        return Wait()
    if seen.scale_set is None:
        if now - attempt.since >= pace.read_lag:
            return Move(to=AttemptState.ENDED, outcome=attempt.outcome)
        return Wait(pace.read_lag - (now - attempt.since))
    return Wait() if seen.scale_set.phase is ScaleSetPhase.DELETING else Delete()


def _ended(attempt: Attempt, seen: Seen, now: datetime, pace: Pace) -> Step:
    return Wait(timedelta(days=365))


DECIDE: dict[AttemptState, Callable[[Attempt, Seen, datetime, Pace], Step]] = {
    AttemptState.PENDING: _pending,
    AttemptState.PROVISIONING: _provisioning,
    AttemptState.STARTING: _starting,
    AttemptState.RUNNING: _running,
    AttemptState.TERMINATING: _terminating,
    AttemptState.ENDED: _ended,
}


def _end(outcome: Outcome, reason: str) -> Move:
    return Move(to=AttemptState.TERMINATING, outcome=outcome, reason=reason)


def _wished(attempt: Attempt) -> Move | None:
    return _end(attempt.wish, attempt.because or "as the user asked") if attempt.wish else None


def _out_of_money(attempt: Attempt, seen: Seen, now: datetime, pace: Pace) -> Move | None:
    """End the attempt when the reserved time to save is over.

    It counts from when the budget was used up. Neither what nodes say nor when they could be heard
    extends it: each further minute would cost money that is not reserved.
    """
    if attempt.over_budget_at is None or seen.model_committed:
        return None
    seconds = pace.save.total_seconds()
    allowed = timedelta(seconds=min(attempt.save_seconds or seconds, seconds))
    if now - attempt.over_budget_at <= allowed:
        return None
    took = humanize.duration(allowed.total_seconds())
    why = attempt.because or "the budget is exhausted"
    return _end(
        attempt.wish or Outcome.OVER_BUDGET,
        f"{why}; the machines did not stop in the {took} that the budget reserves for saving",
    )


def _in_vain(attempt: Attempt, seen: Seen, now: datetime, pace: Pace) -> Move | None:
    """End what can commit nothing, or says without end that it has: nodes may be hostile."""
    since, unnamed = seen.head_unreadable_since, seen.unnamed_since
    if since is not None and now - since > TOO_LONG_UNREADABLE:
        return _wished(attempt) or _end(Outcome.UNRESPONSIVE, HEAD_UNREADABLE)
    if unnamed is not None and now - unnamed > pace.save:
        why = "a node says that HEAD names the final model, which it does not"
        return _wished(attempt) or _end(Outcome.UNRESPONSIVE, why)
    return None


def _wind_down(attempt: Attempt, seen: Seen, now: datetime, pace: Pace) -> Step:
    """A wish: stop the generation first (saving, unless it is a cancel), then end."""
    end = _wished(attempt)
    assert end is not None
    current = seen.generation
    if current is None or is_settled(current, seen.nodes):
        return end
    cancel = attempt.wish is Outcome.CANCELLED
    kind = DirectiveKind.STOP if cancel else DirectiveKind.CHECKPOINT_AND_STOP
    asked = halt(current, seen.nodes, kind, attempt.because or f"the job is to be {attempt.wish}")
    if not cancel and _silent(seen, now, pace):  # it takes every member to save
        return end
    # A cancelled attempt ends the same way whether or not its nodes could say that they stopped.
    step = _halt_or_move_on(asked, replace(seen, awake_since=EVER) if cancel else seen, now, pace)
    return end if isinstance(step, Move) else step


def _halt_or_move_on(asked: Halt, seen: Seen, now: datetime, pace: Pace) -> Step:
    """Give the members some time to stop; after that the fence on HEAD must do.

    The time for STOP begins when they are told to STOP, not when they were told to save; and anew
    when they can be heard again: they may have stopped, and could not say so.
    """
    stop = asked.kind is DirectiveKind.STOP
    told = seen.halt_kind is DirectiveKind.STOP or not stop
    allowed = pace.settle if stop else pace.save
    if told and seen.halted_at and now - seen.excused(seen.halted_at) > allowed:
        return _end(Outcome.EVICTED, f"{asked.reason}; machines did not stop in time")
    return asked


def _wanted(attempt: Attempt, seen: Seen) -> int:
    """How many nodes the next generation is to have; 0 when what is left is not enough.

    The first one waits for machines that still boot, if elastic for a short time only; a later one
    only for those that stay.
    """
    elastic, awaited = attempt.elastic, unhealthy_nodes.awaited(seen.nodes)
    left = seen.running_instances - sum(n.present and not n.stays for n in seen.nodes)
    if elastic is None:
        short = any(n.evicting for n in seen.nodes) or left + awaited < attempt.instance_count
        return 0 if short else attempt.instance_count
    least = elastic.node_counts[0]
    if seen.generation is not None:
        left = going_on(seen.generation, seen.nodes)
    elif ready := _ready(seen, least, left):
        return largest(elastic.node_counts, ready)
    elif left >= least and seen.scale_set and seen.scale_set.phase is ScaleSetPhase.CREATING:
        left = attempt.instance_count
    return largest(elastic.node_counts, left) or (least if left + awaited >= least else 0)


def _ready(seen: Seen, least: int, left: int) -> int:
    """How many nodes wait already, once the ``least`` have waited long enough for stragglers."""
    ready = sorted((n.waiting for n in seen.nodes if n.free), reverse=True)
    enough = left >= least <= len(ready) and ready[least - 1] >= STRAGGLERS
    return len(ready) if enough else 0


def _grow(attempt: Attempt, current: Generation, seen: Seen) -> Halt | None:
    """Halt a healthy generation for a larger one, once that pays; what is begun is ended."""
    elastic = attempt.elastic
    if elastic is None or not seen.stepped:
        return None
    now = len(current.members)
    then = largest(elastic.node_counts, now + len(joining(current, seen.nodes)))
    begun = seen.halt_kind is DirectiveKind.CHECKPOINT_AND_STOP
    if begun or growth_pays(elastic.batch, now, then, seen.outlook):
        return halt(current, seen.nodes, DirectiveKind.CHECKPOINT_AND_STOP, JOINS)
    return None


def _what_was_lost(attempt: Attempt, seen: Seen) -> str:
    lost = attempt.instance_count - seen.running_instances
    noticed = sum(n.evicting and (n.present or not attempt.elastic) for n in seen.nodes)
    how = "after notice" if noticed else "without notice"
    few = f"; fewer than {attempt.elastic.node_counts[0]} are left" if attempt.elastic else ""
    return f"{max(lost, noticed)} of {attempt.instance_count} instances evicted {how}{few}"


def _open(attempt: Attempt, asked: Open, seen: Seen, now: datetime) -> Step:
    before = members_of(seen.generation, seen.nodes) if seen.generation else []
    lost = tuple(n for n in before if not n.stays and not n.unhealthy)
    ladder = seen.ladder
    if ladder.below:
        rung, why = ladder.below, ladder.because  # nobody's fault, and no reason to wait
        return OpenGeneration(nodes=asked.nodes, lost=lost, rung=rung, because=why)
    if seen.generation is not None and is_hopeless(seen.generation, seen.nodes):
        return _end(Outcome.TRAINER_ERROR, HOPELESS)
    failed = seen.generation is not None and is_trainers_fault(seen.generation, seen.nodes)
    error = failed and seen.fruitless > 0  # one that has committed something came forward
    if seen.fruitless and ladder.exhausted:
        return _end(Outcome.TRAINER_ERROR, ladder.exhausted)
    if error and attempt.trainer_errors + 1 >= MAX_TRAINER_ERRORS:
        many = f"{MAX_TRAINER_ERRORS} trainer errors in a row without a new checkpoint"
        return _end(Outcome.TRAINER_ERROR, many)
    if seen.fruitless >= MAX_FRUITLESS:
        return _end(Outcome.TRAINER_ERROR, FRUITLESS)
    pause = _PAUSES[min(seen.fruitless, len(_PAUSES) - 1)]
    left = pause - (now - seen.opened_at) if seen.opened_at else timedelta(0)
    if left > timedelta(0):
        return Wait(left)
    return OpenGeneration(nodes=asked.nodes, after_error=error, lost=lost, rung=ladder.rung)


def _silent(seen: Seen, now: datetime, pace: Pace) -> Move | None:
    if seen.heard_at is None or now - seen.heard_at <= pace.silence:
        return None
    seconds = int((now - seen.heard_at).total_seconds())
    return _end(Outcome.UNRESPONSIVE, f"a node was silent for {seconds} s")


def _out_of_time(attempt: Attempt, seen: Seen, now: datetime, pace: Pace) -> Move | None:
    """Machines that start could not say how far they are while nobody heard them."""
    allowed, outcome = TIME_LIMITS[attempt.state]
    since = attempt.since
    if attempt.state is AttemptState.PROVISIONING:
        allowed = pace.provisioning
    if attempt.state is AttemptState.STARTING:  # over once a step is done, which may take long
        allowed += 2 * timedelta(seconds=attempt.step_seconds)
        since = seen.excused(since)
    if now - since <= allowed:
        return None
    if attempt.state is AttemptState.PROVISIONING and seen.misconfigured:
        return _end(Outcome.MISCONFIGURED, seen.misconfigured)
    spent = humanize.duration((now - attempt.since).total_seconds())
    unseen = "; Azure does not tell what has become of it" if seen.blind else ""
    return _end(outcome, f"{attempt.state} for {spent}{unseen}")
