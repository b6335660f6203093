"""Describe an attempt, one hold on one scale set, and the steps that it can take. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from service.domain.cloud.fleet import Offering, ScaleSet, scale_set_name
from service.domain.lifecycle.elastic import UNKNOWN_OUTLOOK, ElasticNodes, GrowthOutlook
from service.domain.lifecycle.generation import HaltGeneration, NodeView
from service.domain.lifecycle.oom_fallback import AS_PLANNED, OomFallback
from service.domain.states import TIME_LIMITS, AttemptState, Outcome
from trainer.contract import NOT_THE_MODEL, DirectiveKind, Generation, Rung

JOINS = "a machine joins"  # why a generation is halted that nothing is wrong with
NOT_RETRYABLE = "no second try would help"
VERIFICATION_FAILED = "verification_failed"  # the exported files are not the trained model
# How the reason begins where no other machine would fare better, and the code of a job that failed.
CANNOT_BOOT = "The machines cannot boot"
BOOT_FAILED = "boot_failed"
MAX_FRUITLESS = 10  # generations in a row without a newly committed checkpoint, whatever the reason
FRUITLESS = f"{MAX_FRUITLESS} starts in a row without a new checkpoint"
# An operator may restore HEAD meanwhile; until then no node can commit, and machines cost money.
HEAD_UNREADABLE = "HEAD, which names the job's checkpoints, cannot be read or taken"
TOO_LONG_UNREADABLE = timedelta(minutes=20)
ALWAYS_AWAKE = datetime.min.replace(tzinfo=UTC)
TOO_LONG_TO_DELETE = timedelta(minutes=15)  # ten times what Azure usually takes
LONGEST_EXCUSE = timedelta(hours=2)  # for one silence, however often the service restarts


@dataclass(frozen=True, kw_only=True)
class AttemptTiming:
    """Time limits and intervals of attempts."""

    poll: timedelta = timedelta(seconds=10)
    read_lag: timedelta = timedelta(minutes=1)  # a fresh scale set may not be visible yet
    silence: timedelta = timedelta(minutes=5)  # of a node, before it counts as unresponsive
    settle: timedelta = timedelta(seconds=60)  # for members to stop, before the fence must do
    save: timedelta = timedelta(minutes=15)  # for members to save, upload and stop
    # for all machines to come, or as many as an elastic job needs
    provisioning: timedelta = TIME_LIMITS[AttemptState.PROVISIONING][0]


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """The attempt's row, with what its job requests of it."""

    id: str
    job_id: str
    number: int
    state: AttemptState
    since: datetime
    offering: Offering
    instance_count: int
    outcome: Outcome | None = None
    stop_as: Outcome | None = None  # CANCELLED, PAUSED or OVER_BUDGET: what the job wants of it
    because: str = ""  # why it is to stop, where the user did not ask for it
    trainer_errors: int = 0  # of the job, in a row
    elastic: ElasticNodes | None = None  # None: the world size is kept
    refills: int = 0  # how often machines were asked for in place of lost ones, in a row ...
    refilled_at: datetime | None = None  # ... and when last
    step_seconds: float = 0.0  # of a training step as planned, at P90, wherever it is slowest
    over_budget_at: datetime | None = None  # when the job's budget or its project's was exhausted
    save_seconds: float | None = None  # reserved for saving this job; None: `AttemptTiming.save`
    ends_by: datetime | None = None  # the engine ends it then; None: never
    creates_at: datetime | None = None  # when its creation may be made; None: at once

    @property
    def scale_set_name(self) -> str:
        """Return the name of its scale set."""
        return scale_set_name(self.id)


@dataclass(frozen=True, kw_only=True)
class AttemptView:
    """What was observed of the attempt."""

    scale_set: ScaleSet | None
    nodes: Sequence[NodeView] = ()
    heard_at: datetime | None = None  # the oldest last heartbeat among the current members
    generation: Generation | None = None
    opened_at: datetime | None = None  # the generation
    fruitless: int = 0  # generations in a row, this one included, that committed nothing new ...
    oom_fallback: OomFallback = AS_PLANNED  # ... on its present rung
    halted_at: datetime | None = None  # since when the generation is directed to stop ...
    halt_kind: DirectiveKind | None = None  # ... in this way
    stepped: bool = False  # a training step of the generation is done
    model_committed: bool = False  # HEAD names the final model
    head_unreadable_since: datetime | None = None  # None: it could be read
    unnamed_since: datetime | None = None  # rank 0 says HEAD names the model, which it does not
    outlook: GrowthOutlook = UNKNOWN_OUTLOOK
    cannot_boot: str = ""  # why no machine of the attempt can, as one has said; begins CANNOT_BOOT
    misconfigured: str = ""  # why Azure refuses what this attempt asks for, until a person acts
    cloud_unreachable: bool = False  # it did not answer; with nodes, ``scale_set`` is as before
    awake_since: datetime = ALWAYS_AWAKE  # since when nodes could be heard, and could hear

    def wait_start(self, since: datetime) -> datetime:
        """Return when a wait for nodes that began at ``since`` counts from; `wait_start`."""
        return wait_start(since, self.awake_since)

    @property
    def running_instances(self) -> int:
        """Return the number of instances that exist and run."""
        return sum(i.running for i in self.scale_set.instances) if self.scale_set else 0


@dataclass(frozen=True)
class RequeueAttempt:
    """Process the attempt again after ``delay`` (None: the usual poll interval)."""

    delay: timedelta | None = None


@dataclass(frozen=True)
class CreateScaleSet:
    """Request the scale set from the cloud."""


@dataclass(frozen=True)
class RefillScaleSet:
    """Request the missing machines, and replacements for the ``useless``."""

    useless: tuple[str, ...] = ()  # vm_ids


@dataclass(frozen=True)
class DeleteScaleSet:
    """Request the deletion of the scale set."""


@dataclass(frozen=True, kw_only=True)
class OpenGeneration:
    """Fence HEAD and write the next generation row."""

    nodes: tuple[NodeView, ...]
    after_error: bool = False
    rung: Rung | None = None  # None: as planned
    because: str = ""  # what is new about the rung, and why; empty when it is the one before
    lost: tuple[NodeView, ...] = ()  # members of the one before that Azure takes or has taken


@dataclass(frozen=True, kw_only=True)
class MoveAttempt:
    """Write one state transition."""

    to: AttemptState
    outcome: Outcome | None = None
    reason: str = ""


AttemptStep = (
    RequeueAttempt
    | CreateScaleSet
    | RefillScaleSet
    | DeleteScaleSet
    | HaltGeneration
    | OpenGeneration
    | MoveAttempt
)


def wait_start(since: datetime, awake_since: datetime) -> datetime:
    """Return when a wait for nodes counts from, if the service hears them since ``awake_since``.

    The extension is bounded. Rare rounds, or a service that restarts often, move ``awake_since``
    repeatedly, and must not keep silent machines for ever.
    """
    return max(since, min(awake_since, since + LONGEST_EXCUSE))


def failure_code(outcome: Outcome | None, message: str) -> str:
    """Return the error code of a failed job: its last outcome, or what the trainer names."""
    if outcome is Outcome.TRAINER_ERROR and message.startswith(NOT_THE_MODEL):
        return VERIFICATION_FAILED
    if message.startswith(CANNOT_BOOT):
        return BOOT_FAILED
    return str(outcome)


def is_deletion_stuck(attempt: Attempt, view: AttemptView, now: datetime) -> bool:
    """Return whether machines that should be gone may still cost money: alert operators."""
    late = now - attempt.since > TOO_LONG_TO_DELETE
    may_exist = view.scale_set is not None or view.cloud_unreachable
    return attempt.state is AttemptState.TERMINATING and late and may_exist
