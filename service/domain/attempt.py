"""One hold on one scale set, and what to do about it next. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from service.domain import wording
from service.domain.elastic import UNKNOWN, Elastic, Outlook, growth_pays, largest, worth_asking
from service.domain.fleet import Offering, ScaleSet, ScaleSetPhase, scale_set_name
from service.domain.generation import (
    Halt,
    NodeView,
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
from service.domain.job import pause_after
from service.domain.ladder import AS_PLANNED, Ladder
from service.domain.states import TIME_LIMITS, AttemptState, Outcome
from trainer.contract import DirectiveKind, Generation, Rung

JOINS = "a machine joins"  # why a generation is halted that nothing is wrong with
HOPELESS = "no second try would help"
MAX_TRAINER_ERRORS = 3  # in a row, without a newly committed checkpoint
TOO_LONG_TO_DELETE = timedelta(minutes=15)  # ten times what Azure usually takes
MAX_FRUITLESS = 10  # generations in a row without one, for whatever reason
# Before the next generation, by how many in a row were fruitless: what fails at once fails often.
_PAUSES = tuple(timedelta(seconds=s) for s in (0, 0, 5, 10, 20, 40, 60))


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long things may take and how often they are looked at."""

    poll: timedelta = timedelta(seconds=10)
    read_lag: timedelta = timedelta(minutes=1)  # a fresh scale set may not be visible yet
    silence: timedelta = timedelta(minutes=5)  # of a node, before it counts as unresponsive
    settle: timedelta = timedelta(seconds=60)  # for members to stop, before the fence must do
    save: timedelta = timedelta(minutes=15)  # for members to save, upload and stop


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """The row, and the wishes of its job."""

    id: str
    job_id: str
    number: int
    state: AttemptState
    since: datetime
    offering: Offering
    instance_count: int
    outcome: Outcome | None = None
    wish: Outcome | None = None  # CANCELLED, PAUSED or OVER_BUDGET: what the job wants of it
    because: str = ""  # why it is wished, where the user did not ask for it
    trainer_errors: int = 0  # of the job, in a row
    elastic: Elastic | None = None  # None: the world size is kept
    refills: int = 0  # how often machines were asked for in place of lost ones, in a row ...
    refilled_at: datetime | None = None  # ... and when last
    step_seconds: float = 0.0  # of a training step as planned, at P90, wherever it is slowest

    @property
    def scale_set_name(self) -> str:
        """The name of its scale set."""
        return scale_set_name(self.id)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What was found when the attempt was looked at."""

    scale_set: ScaleSet | None
    nodes: Sequence[NodeView] = ()
    heard_at: datetime | None = None  # the oldest last heartbeat among the current members
    generation: Generation | None = None
    opened_at: datetime | None = None  # the generation
    fruitless: int = 0  # generations in a row, this one included, that committed nothing new ...
    ladder: Ladder = AS_PLANNED  # ... on its present rung
    halted_at: datetime | None = None  # since when the generation is told to stop ...
    halt_kind: DirectiveKind | None = None  # ... in this way
    stepped: bool = False  # a training step of the generation is done
    model_committed: bool = False  # HEAD names the final model
    outlook: Outlook = UNKNOWN
    blind: bool = False  # the cloud did not answer; with nodes, ``scale_set`` is as before

    @property
    def running_instances(self) -> int:
        """Instances that exist and run."""
        return sum(i.running for i in self.scale_set.instances) if self.scale_set else 0


@dataclass(frozen=True)
class Wait:
    """Look again after ``delay`` (None: the usual poll)."""

    delay: timedelta | None = None


@dataclass(frozen=True)
class Create:
    """Ask the cloud for the scale set."""


@dataclass(frozen=True)
class Refill:
    """Ask the cloud for machines in place of those that are gone, and of the ``useless``."""

    useless: tuple[str, ...] = ()  # vm_ids


@dataclass(frozen=True)
class Delete:
    """Ask the cloud to delete the scale set."""


@dataclass(frozen=True, kw_only=True)
class OpenGeneration:
    """Fence HEAD and write the next generation row."""

    nodes: tuple[NodeView, ...]
    after_error: bool = False
    rung: Rung | None = None  # None: as planned
    because: str = ""  # what is new about the rung, and why; empty when it is the one before
    lost: tuple[NodeView, ...] = ()  # members of the one before that Azure takes or has taken


@dataclass(frozen=True, kw_only=True)
class Move:
    """Write one move."""

    to: AttemptState
    outcome: Outcome | None = None
    reason: str = ""


Step = Wait | Create | Refill | Delete | Halt | OpenGeneration | Move


def next_step(attempt: Attempt, seen: Seen, now: datetime, pace: Pace) -> Step:
    """Decide one step; the same arguments always give the same step."""
    return DECIDE[attempt.state](attempt, seen, now, pace)


def will_not_die(attempt: Attempt, seen: Seen, now: datetime) -> bool:
    """True when machines that should be gone may cost money still, and somebody should be told."""
    late = now - attempt.since > TOO_LONG_TO_DELETE
    left = seen.scale_set is not None or seen.blind
    return attempt.state is AttemptState.TERMINATING and late and left


def _pending(attempt: Attempt, seen: Seen, now: datetime, pace: Pace) -> Step:
    if attempt.wish:
        return Move(to=AttemptState.ENDED, outcome=attempt.wish, reason="before launch")
    return Move(to=AttemptState.PROVISIONING)


def _provisioning(attempt: Attempt, seen: Seen, now: datetime, pace: Pace) -> Step:
    found = seen.scale_set
    if found is not None and found.phase is ScaleSetPhase.READY and not attempt.wish:
        return Move(to=AttemptState.STARTING)  # however late: the machines are there
    if end := _wished(attempt) or _out_of_time(attempt, now):
        return end
    if found is None:
        return Wait() if seen.blind else Create()
    if found.phase is ScaleSetPhase.FAILED:
        why = f"{found.error_code}: {found.error_message}".strip(": ") or "provisioning failed"
        return _end(Outcome.NO_CAPACITY, why)
    if found.phase is ScaleSetPhase.DELETING:
        return _end(Outcome.EVICTED, "the scale set is being deleted by somebody else")
    return Wait()


def _starting(attempt: Attempt, seen: Seen, now: datetime, pace: Pace) -> Step:
    step = _running(attempt, seen, now, pace)
    if isinstance(step, Move):
        return step
    if seen.stepped and isinstance(step, Wait | Refill):
        return Move(to=AttemptState.RUNNING)
    return _out_of_time(attempt, now) or step


def _running(attempt: Attempt, seen: Seen, now: datetime, pace: Pace) -> Step:
    """Training comes first; while it needs nothing, machines are asked for in place of lost ones.

    Members that have been told to stop need nothing either.
    """
    step = _train(attempt, seen, now, pace)
    told = isinstance(step, Halt) and step.kind is seen.halt_kind
    if told or isinstance(step, Wait):
        if useless := _useless(attempt, seen, now, pace):
            return Refill(useless)
        if _refill_is_due(attempt, seen, now):
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
        return _end(Outcome.EVICTED, _what_was_lost(attempt, seen))
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
    step = _halt_or_move_on(asked, seen, now, pace)
    return end if isinstance(step, Move) else step


def _halt_or_move_on(asked: Halt, seen: Seen, now: datetime, pace: Pace) -> Step:
    """Give the members some time to stop; after that the fence on HEAD must do.

    The time for STOP begins when they are told to STOP, not when they were told to save.
    """
    stop = asked.kind is DirectiveKind.STOP
    told = seen.halt_kind is DirectiveKind.STOP or not stop
    allowed = pace.settle if stop else pace.save
    if told and seen.halted_at and now - seen.halted_at > allowed:
        return _end(Outcome.EVICTED, f"{asked.reason}; machines did not stop in time")
    return asked


def _wanted(attempt: Attempt, seen: Seen) -> int:
    """How many nodes the next generation is to have; 0 when what is left is not enough.

    The first one waits for machines that still boot, a later one only for those that stay.
    """
    elastic, running = attempt.elastic, seen.running_instances
    if elastic is None:
        short = any(n.evicting for n in seen.nodes) or running < attempt.instance_count
        return 0 if short else attempt.instance_count
    if seen.generation is None:
        leaving = sum(n.present and n.evicting for n in seen.nodes)
        return largest(elastic.node_counts, running - leaving)
    return largest(elastic.node_counts, going_on(seen.generation, seen.nodes))


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


def _useless(attempt: Attempt, seen: Seen, now: datetime, pace: Pace) -> tuple[str, ...]:
    """Machines that came later and never joined, or hang: they cost money and train nothing.

    While they are there no other is asked for in their place.
    """
    if attempt.elastic is None or seen.scale_set is None or seen.generation is None:
        return ()
    allowed, _ = TIME_LIMITS[AttemptState.STARTING]
    of_use = {m.vm_id for m in seen.generation.members}
    of_use |= {n.vm_id for n in seen.nodes if n.quiet <= pace.silence}
    return tuple(
        i.vm_id
        for i in seen.scale_set.instances
        if i.running and i.vm_id and i.vm_id not in of_use
        if i.created_at and now - i.created_at > allowed
    )


def _refill_is_due(attempt: Attempt, seen: Seen, now: datetime) -> bool:
    """True when machines are missing, nothing is under way, and one more could be of use."""
    elastic, found = attempt.elastic, seen.scale_set
    if elastic is None or found is None or seen.blind or attempt.wish:
        return False
    quiet = found.phase in (ScaleSetPhase.READY, ScaleSetPhase.FAILED)
    if not quiet or seen.running_instances >= attempt.instance_count:
        return False
    pause = pause_after(attempt.refills, 0)
    if attempt.refilled_at and now - attempt.refilled_at < pause:
        return False
    if seen.generation is None:
        return True
    if is_finished(seen.generation, seen.nodes):
        return False
    left = largest(elastic.node_counts, going_on(seen.generation, seen.nodes))
    full = attempt.instance_count
    return left > 0 and worth_asking(elastic.batch, left, full, seen.outlook)


def _what_was_lost(attempt: Attempt, seen: Seen) -> str:
    lost = attempt.instance_count - seen.running_instances
    noticed = sum(n.evicting and (n.present or not attempt.elastic) for n in seen.nodes)
    how = "after notice" if noticed else "without notice"
    few = f"; fewer than {attempt.elastic.node_counts[0]} are left" if attempt.elastic else ""
    return f"{max(lost, noticed)} of {attempt.instance_count} instances evicted {how}{few}"


def _open(attempt: Attempt, asked: Open, seen: Seen, now: datetime) -> Step:
    before = members_of(seen.generation, seen.nodes) if seen.generation else []
    lost = tuple(n for n in before if not n.stays)
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
        many = f"{MAX_FRUITLESS} starts in a row without a new checkpoint"
        return _end(Outcome.TRAINER_ERROR, many)
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


def _out_of_time(attempt: Attempt, now: datetime) -> Move | None:
    allowed, outcome = TIME_LIMITS[attempt.state]
    step = attempt.step_seconds if attempt.state is AttemptState.STARTING else 0.0
    if (spent := now - attempt.since) <= allowed + 2 * timedelta(seconds=step):
        return None  # it has started once a step is done, which may take long
    return _end(outcome, f"{attempt.state} for {wording.duration(spent.total_seconds())}")
