"""Decide the next step of an attempt: one rule for each of its states. Pure."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from service.domain import humanize
from service.domain.cloud.fleet import ScaleSet, ScaleSetFailure, ScaleSetPhase
from service.domain.lifecycle import refill, unhealthy_nodes
from service.domain.lifecycle.attempt import (
    ALWAYS_AWAKE,
    FRUITLESS,
    HEAD_UNREADABLE,
    JOINS,
    MAX_FRUITLESS,
    NOT_RETRYABLE,
    TOO_LONG_UNREADABLE,
    Attempt,
    AttemptStep,
    AttemptTiming,
    AttemptView,
    CreateScaleSet,
    DeleteScaleSet,
    MoveAttempt,
    OpenGeneration,
    RefillScaleSet,
    RequeueAttempt,
)
from service.domain.lifecycle.elastic import STRAGGLER_TIMEOUT, is_growth_worthwhile, largest_count
from service.domain.lifecycle.generation import (
    HaltGeneration,
    NextMembers,
    continuing_count,
    halt_members,
    is_finished,
    is_not_retryable,
    is_settled,
    is_trainers_fault,
    joining_nodes,
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


def next_step(
    attempt: Attempt, view: AttemptView, now: datetime, pace: AttemptTiming
) -> AttemptStep:
    """Decide one step; the same arguments always give the same step."""
    if attempt.ends_by and not attempt.stop_as and now >= attempt.ends_by - _BEFORE_END:
        attempt = replace(attempt, stop_as=Outcome.EVICTED, because=LONGEST_RUN)
    return DECISIONS[attempt.state](attempt, view, now, pace)


def _pending(
    attempt: Attempt, view: AttemptView, now: datetime, pace: AttemptTiming
) -> AttemptStep:
    if attempt.stop_as:
        why = attempt.because or "before launch"
        return MoveAttempt(to=AttemptState.ENDED, outcome=attempt.stop_as, reason=why)
    return MoveAttempt(to=AttemptState.PROVISIONING)


def _provisioning(
    attempt: Attempt, view: AttemptView, now: datetime, pace: AttemptTiming
) -> AttemptStep:
    scale_set, running = view.scale_set, view.running_instances
    if end := _end_if_unbootable(attempt, view):
        return end  # those that are still to come would not, either
    if (
        scale_set is not None
        and not attempt.stop_as
        and _has_enough_machines(attempt, scale_set, running)
    ):
        reason = f"{running} of {attempt.instance_count} machines"
        return MoveAttempt(  # however late: the machines are there
            to=AttemptState.STARTING, reason=reason if running < attempt.instance_count else ""
        )
    if end := _end_as_requested(attempt) or _end_if_out_of_time(attempt, view, now, pace):
        return end
    if scale_set is None or scale_set.phase is ScaleSetPhase.INCOMPLETE:
        return RequeueAttempt() if view.cloud_unreachable else CreateScaleSet()
    if scale_set.phase is ScaleSetPhase.DELETING:
        return _end(Outcome.EVICTED, "something other than Rekindle is deleting the scale set")
    if scale_set.phase is ScaleSetPhase.CREATING:
        return RequeueAttempt()
    return _refill_or_end(attempt, scale_set, running, now)


def _end_if_unbootable(attempt: Attempt, view: AttemptView) -> MoveAttempt | None:
    """End an attempt of which a machine reported that none can boot."""
    is_unbootable = view.cannot_boot and view.generation is None and not attempt.stop_as
    return _end(Outcome.UNRESPONSIVE, view.cannot_boot) if is_unbootable else None


def _has_enough_machines(attempt: Attempt, scale_set: ScaleSet, running: int) -> bool:
    """Return whether there are enough machines to start: all, or enough for an elastic job.

    The phase of the set is not decisive. In a FAILED set, by OSProvisioningTimedOut or an
    extension, all machines may run (CloudVE/cloudbridge issue 222, Azure/vm-scale-sets issue 82).
    In a READY set some may have been evicted; but while they are refilled, too few are too few.
    """
    if scale_set.phase is ScaleSetPhase.DELETING:
        return False
    elastic = attempt.elastic
    enough = running >= attempt.instance_count or (
        elastic is not None and largest_count(elastic.node_counts, running) > 0
    )
    return enough or (scale_set.phase is ScaleSetPhase.READY and attempt.refilled_at is None)


def _refill_or_end(attempt: Attempt, scale_set: ScaleSet, count: int, now: datetime) -> AttemptStep:
    """Keep the machines that have come and ask for the rest; without any, the failure decides."""
    why = f"{scale_set.error_code}: {scale_set.error_message}".strip(": ") or "provisioning failed"
    failed = scale_set.phase is ScaleSetPhase.FAILED
    if failed and scale_set.failure is ScaleSetFailure.MISCONFIGURED:
        return _end(Outcome.MISCONFIGURED, why)
    if failed and not count:
        none = scale_set.failure is ScaleSetFailure.NO_CAPACITY
        return _end(Outcome.NO_CAPACITY if none else Outcome.PROVISIONING_FAILED, why)
    return RefillScaleSet() if refill.is_backoff_over(attempt, now) else RequeueAttempt()


def _starting(
    attempt: Attempt, view: AttemptView, now: datetime, pace: AttemptTiming
) -> AttemptStep:
    if end := _end_if_unbootable(attempt, view):
        return end
    step = _running(attempt, view, now, pace)
    if isinstance(step, MoveAttempt):
        return step
    if view.stepped and isinstance(step, RequeueAttempt | RefillScaleSet):
        return MoveAttempt(to=AttemptState.RUNNING)
    return _end_if_out_of_time(attempt, view, now, pace) or step


def _running(
    attempt: Attempt, view: AttemptView, now: datetime, pace: AttemptTiming
) -> AttemptStep:
    """Train; while training needs nothing, request replacements for lost machines.

    Members that were directed to stop need nothing either.
    """
    end = _end_if_out_of_money(attempt, view, now, pace) or _end_if_fruitless(
        attempt, view, now, pace
    )
    step = end or _train(attempt, view, now, pace)
    directed = isinstance(step, HaltGeneration) and step.kind is view.halt_kind
    if directed or isinstance(step, RequeueAttempt):
        if useless := refill.useless_machines(attempt, view, now, pace):
            return RefillScaleSet(useless)
        if refill.is_refill_due(attempt, view, now):
            return RefillScaleSet()
    return step


def _train(attempt: Attempt, view: AttemptView, now: datetime, pace: AttemptTiming) -> AttemptStep:
    """Keep one generation alive in STARTING and RUNNING, or end for the right reason."""
    current = view.generation
    if view.model_committed:  # whatever else happened: the result is there
        return _end(Outcome.SUCCEEDED, "the final model is committed")
    finished = current is not None and is_finished(current, view.nodes)
    if finished and attempt.stop_as is not Outcome.CANCELLED:  # HEAD is about to say so too
        return _end_if_silent(view, now, pace) or RequeueAttempt()
    if attempt.stop_as:
        return _wind_down(attempt, view, now, pace)
    target = _target_node_count(attempt, view)
    membership = next_membership(current, view.nodes, target)
    if isinstance(membership, HaltGeneration):
        return _halt_or_move_on(membership, view, now, pace)
    if current is not None and not is_settled(current, view.nodes):
        grown = _grow(attempt, current, view)
        unresponsive_end = _end_if_silent(view, now, pace)
        next_step = _halt_or_move_on(grown, view, now, pace) if grown else RequeueAttempt()
        return unresponsive_end or next_step
    if not target:
        eviction = _end(Outcome.EVICTED, _loss_sentence(attempt, view))
        return unhealthy_nodes.unhealthy_end(attempt, view) or eviction
    if isinstance(membership, NextMembers):
        return _open(attempt, membership, view, now)
    return _end_if_silent(view, now, pace) or RequeueAttempt()


def _terminating(
    attempt: Attempt, view: AttemptView, now: datetime, pace: AttemptTiming
) -> AttemptStep:
    if view.cloud_unreachable:
        return RequeueAttempt()
    if view.scale_set is None:
        if now - attempt.since >= pace.read_lag:
            return MoveAttempt(to=AttemptState.ENDED, outcome=attempt.outcome)
        return RequeueAttempt(pace.read_lag - (now - attempt.since))
    return RequeueAttempt() if view.scale_set.phase is ScaleSetPhase.DELETING else DeleteScaleSet()


def _ended(attempt: Attempt, view: AttemptView, now: datetime, pace: AttemptTiming) -> AttemptStep:
    return RequeueAttempt(timedelta(days=365))


DECISIONS: dict[
    AttemptState, Callable[[Attempt, AttemptView, datetime, AttemptTiming], AttemptStep]
] = {
    AttemptState.PENDING: _pending,
    AttemptState.PROVISIONING: _provisioning,
    AttemptState.STARTING: _starting,
    AttemptState.RUNNING: _running,
    AttemptState.TERMINATING: _terminating,
    AttemptState.ENDED: _ended,
}


def _end(outcome: Outcome, reason: str) -> MoveAttempt:
    return MoveAttempt(to=AttemptState.TERMINATING, outcome=outcome, reason=reason)


def _end_as_requested(attempt: Attempt) -> MoveAttempt | None:
    why = attempt.because or "as the user asked"
    return _end(attempt.stop_as, why) if attempt.stop_as else None


def _end_if_out_of_money(
    attempt: Attempt, view: AttemptView, now: datetime, pace: AttemptTiming
) -> MoveAttempt | None:
    """End the attempt when the reserved time to save is over.

    It counts from when the budget was exhausted. Neither what nodes say nor when they could be
    heard extends it: each further minute would cost money that is not reserved.
    """
    if attempt.over_budget_at is None or view.model_committed:
        return None
    seconds = pace.save.total_seconds()
    allowed = timedelta(seconds=min(attempt.save_seconds or seconds, seconds))
    if now - attempt.over_budget_at <= allowed:
        return None
    took = humanize.format_duration(allowed.total_seconds())
    why = attempt.because or "the budget is exhausted"
    return _end(
        attempt.stop_as or Outcome.OVER_BUDGET,
        f"{why}; the machines did not stop in the {took} that the budget reserves for saving",
    )


def _end_if_fruitless(
    attempt: Attempt, view: AttemptView, now: datetime, pace: AttemptTiming
) -> MoveAttempt | None:
    """End an attempt that cannot commit, or claims without proof that it did."""
    since, unnamed = view.head_unreadable_since, view.unnamed_since
    if since is not None and now - since > TOO_LONG_UNREADABLE:
        return _end_as_requested(attempt) or _end(Outcome.UNRESPONSIVE, HEAD_UNREADABLE)
    if unnamed is not None and now - unnamed > pace.save:
        why = "a node says that HEAD names the final model, which it does not"
        return _end_as_requested(attempt) or _end(Outcome.UNRESPONSIVE, why)
    return None


def _wind_down(
    attempt: Attempt, view: AttemptView, now: datetime, pace: AttemptTiming
) -> AttemptStep:
    """Stop the generation (saving, unless it is a cancel), then end as requested."""
    end = _end_as_requested(attempt)
    assert end is not None
    current = view.generation
    if current is None or is_settled(current, view.nodes):
        return end
    cancel = attempt.stop_as is Outcome.CANCELLED
    kind = DirectiveKind.STOP if cancel else DirectiveKind.CHECKPOINT_AND_STOP
    why = attempt.because or f"the job is to be {attempt.stop_as}"
    halt = halt_members(current, view.nodes, kind, why)
    if not cancel and _end_if_silent(view, now, pace):  # it takes every member to save
        return end
    # A cancelled attempt ends the same way whether or not its nodes could say that they stopped.
    step = _halt_or_move_on(
        halt, replace(view, awake_since=ALWAYS_AWAKE) if cancel else view, now, pace
    )
    return end if isinstance(step, MoveAttempt) else step


def _halt_or_move_on(
    halt: HaltGeneration, view: AttemptView, now: datetime, pace: AttemptTiming
) -> AttemptStep:
    """Give the members some time to stop; after that the fence on HEAD must do.

    The time for STOP begins when they are told to STOP, not when they were told to save; and anew
    when they can be heard again: they may have stopped, and could not say so.
    """
    stop = halt.kind is DirectiveKind.STOP
    is_directed = view.halt_kind is DirectiveKind.STOP or not stop
    allowed = pace.settle if stop else pace.save
    if is_directed and view.halted_at and now - view.wait_start(view.halted_at) > allowed:
        return _end(Outcome.EVICTED, f"{halt.reason}; machines did not stop in time")
    return halt


def _target_node_count(attempt: Attempt, view: AttemptView) -> int:
    """Return the nodes of the next generation; 0 if too few are left.

    The first one waits for machines that still boot, if elastic for a short time only; a later one
    only for those that stay.
    """
    elastic, awaited = attempt.elastic, unhealthy_nodes.awaited_replacements(view.nodes)
    usable = view.running_instances - sum(n.present and not n.stays for n in view.nodes)
    if elastic is None:
        short = any(n.evicting for n in view.nodes) or usable + awaited < attempt.instance_count
        return 0 if short else attempt.instance_count
    least = elastic.node_counts[0]
    if view.generation is not None:
        usable = continuing_count(view.generation, view.nodes)
    elif ready := _ready_node_count(view, least, usable):
        return largest_count(elastic.node_counts, ready)
    elif usable >= least and view.scale_set and view.scale_set.phase is ScaleSetPhase.CREATING:
        usable = attempt.instance_count
    return largest_count(elastic.node_counts, usable) or (least if usable + awaited >= least else 0)


def _ready_node_count(view: AttemptView, least: int, usable: int) -> int:
    """Return the number of ready nodes once the ``least`` have waited for stragglers."""
    ready = sorted((n.waiting for n in view.nodes if n.free), reverse=True)
    enough = usable >= least <= len(ready) and ready[least - 1] >= STRAGGLER_TIMEOUT
    return len(ready) if enough else 0


def _grow(attempt: Attempt, current: Generation, view: AttemptView) -> HaltGeneration | None:
    """Halt a healthy generation for a larger one once that pays; finish a growth once begun."""
    elastic = attempt.elastic
    if elastic is None or not view.stepped:
        return None
    count = len(current.members)
    next_count = largest_count(elastic.node_counts, count + len(joining_nodes(current, view.nodes)))
    has_begun = view.halt_kind is DirectiveKind.CHECKPOINT_AND_STOP
    if has_begun or is_growth_worthwhile(elastic.batch, count, next_count, view.outlook):
        return halt_members(current, view.nodes, DirectiveKind.CHECKPOINT_AND_STOP, JOINS)
    return None


def _loss_sentence(attempt: Attempt, view: AttemptView) -> str:
    missing = attempt.instance_count - view.running_instances
    noticed = sum(n.evicting and (n.present or not attempt.elastic) for n in view.nodes)
    how = "after notice" if noticed else "without notice"
    shortfall = f"; fewer than {attempt.elastic.node_counts[0]} are left" if attempt.elastic else ""
    return f"{max(missing, noticed)} of {attempt.instance_count} instances evicted {how}{shortfall}"


def _open(attempt: Attempt, members: NextMembers, view: AttemptView, now: datetime) -> AttemptStep:
    before = members_of(view.generation, view.nodes) if view.generation else []
    evicted = tuple(n for n in before if not n.stays and not n.unhealthy)
    ladder = view.oom_fallback
    if ladder.below:
        rung, why = ladder.below, ladder.because  # no error of the trainer, and no reason to wait
        return OpenGeneration(nodes=members.nodes, lost=evicted, rung=rung, because=why)
    if view.generation is not None and is_not_retryable(view.generation, view.nodes):
        return _end(Outcome.TRAINER_ERROR, NOT_RETRYABLE)
    failed = view.generation is not None and is_trainers_fault(view.generation, view.nodes)
    error = failed and view.fruitless > 0  # one that has committed something came forward
    if view.fruitless and ladder.exhausted:
        return _end(Outcome.TRAINER_ERROR, ladder.exhausted)
    if error and attempt.trainer_errors + 1 >= MAX_TRAINER_ERRORS:
        many = f"{MAX_TRAINER_ERRORS} trainer errors in a row without a new checkpoint"
        return _end(Outcome.TRAINER_ERROR, many)
    if view.fruitless >= MAX_FRUITLESS:
        return _end(Outcome.TRAINER_ERROR, FRUITLESS)
    pause = _PAUSES[min(view.fruitless, len(_PAUSES) - 1)]
    remaining = pause - (now - view.opened_at) if view.opened_at else timedelta(0)
    if remaining > timedelta(0):
        return RequeueAttempt(remaining)
    return OpenGeneration(nodes=members.nodes, after_error=error, lost=evicted, rung=ladder.rung)


def _end_if_silent(view: AttemptView, now: datetime, pace: AttemptTiming) -> MoveAttempt | None:
    if view.heard_at is None or now - view.heard_at <= pace.silence:
        return None
    seconds = int((now - view.heard_at).total_seconds())
    return _end(Outcome.UNRESPONSIVE, f"a node was silent for {seconds} s")


def _end_if_out_of_time(
    attempt: Attempt, view: AttemptView, now: datetime, pace: AttemptTiming
) -> MoveAttempt | None:
    """End after the time limit, extended while nodes could not be heard."""
    allowed, outcome = TIME_LIMITS[attempt.state]
    since = attempt.since
    if attempt.state is AttemptState.PROVISIONING:
        allowed = pace.provisioning
        since = max(since, attempt.creates_at or since)  # our own wait does not count
    if attempt.state is AttemptState.STARTING:  # over once a step is done, which may take long
        allowed += 2 * timedelta(seconds=attempt.step_seconds)
        since = view.wait_start(since)
    if now - since <= allowed:
        return None
    if attempt.state is AttemptState.PROVISIONING and view.misconfigured:
        return _end(Outcome.MISCONFIGURED, view.misconfigured)
    elapsed = humanize.format_duration((now - since).total_seconds())
    unseen = "; Azure does not tell what has become of it" if view.cloud_unreachable else ""
    return _end(outcome, f"{attempt.state} for {elapsed}{unseen}")
