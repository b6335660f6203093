"""One hold on one scale set: what is known of it, and what can be done about it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from service.domain.cloud.fleet import Offering, ScaleSet, scale_set_name
from service.domain.lifecycle.elastic import UNKNOWN, Elastic, Outlook
from service.domain.lifecycle.generation import Halt, NodeView
from service.domain.lifecycle.oom_fallback import AS_PLANNED, Ladder
from service.domain.states import TIME_LIMITS, AttemptState, Outcome
from trainer.contract import NOT_THE_MODEL, DirectiveKind, Generation, Rung

JOINS = "a machine joins"  # why a generation is halted that nothing is wrong with
HOPELESS = "no second try would help"
VERIFICATION_FAILED = "verification_failed"  # the exported files are not the trained model
# How the reason begins where no other machine would fare better, and the code of a job that failed.
CANNOT_BOOT = "The machines cannot boot"
BOOT_FAILED = "boot_failed"
MAX_FRUITLESS = 10  # generations in a row without a newly committed checkpoint, whatever the reason
FRUITLESS = f"{MAX_FRUITLESS} starts in a row without a new checkpoint"
# A person may restore HEAD meanwhile; until then nobody can commit, and machines cost money.
HEAD_UNREADABLE = "HEAD, which names the job's checkpoints, cannot be read or taken"
TOO_LONG_UNREADABLE = timedelta(minutes=20)
EVER = datetime.min.replace(tzinfo=UTC)
TOO_LONG_TO_DELETE = timedelta(minutes=15)  # ten times what Azure usually takes
LONGEST_EXCUSE = timedelta(hours=2)  # for one silence, however often the service restarts


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long things may take and how often they are looked at."""

    poll: timedelta = timedelta(seconds=10)
    read_lag: timedelta = timedelta(minutes=1)  # a fresh scale set may not be visible yet
    silence: timedelta = timedelta(minutes=5)  # of a node, before it counts as unresponsive
    settle: timedelta = timedelta(seconds=60)  # for members to stop, before the fence must do
    save: timedelta = timedelta(minutes=15)  # for members to save, upload and stop
    # for all machines to come, or as many as an elastic job needs
    provisioning: timedelta = TIME_LIMITS[AttemptState.PROVISIONING][0]


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
    over_budget_at: datetime | None = None  # when the job's budget or its project's was used up
    save_seconds: float | None = None  # reserved for saving this job; None: `Pace.save`
    ends_by: datetime | None = None  # the engine ends it then; None: never

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
    head_unreadable_since: datetime | None = None  # None: it could be read
    unnamed_since: datetime | None = None  # rank 0 says HEAD names the model, which it does not
    outlook: Outlook = UNKNOWN
    cannot_boot: str = ""  # why no machine of the attempt can, as one has said; begins CANNOT_BOOT
    misconfigured: str = ""  # why Azure refuses what this attempt asks for, until a person acts
    blind: bool = False  # the cloud did not answer; with nodes, ``scale_set`` is as before
    awake_since: datetime = EVER  # since when nodes could be heard, and could hear

    def excused(self, since: datetime) -> datetime:
        """When a wait for nodes that began at ``since`` counts from, see `excused`."""
        return excused(since, self.awake_since)

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
    """Ask the cloud for the machines that are missing, and for others than the ``useless``."""

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


def excused(since: datetime, awake_since: datetime) -> datetime:
    """Return when a wait for nodes counts from, if the service hears them since ``awake_since``.

    The excuse is bounded. Rounds that are far apart, or a service that restarts often, move
    ``awake_since`` again and again, and must not keep silent machines for ever.
    """
    return max(since, min(awake_since, since + LONGEST_EXCUSE))


def failure_code(outcome: Outcome | None, message: str) -> str:
    """The code of a failed job's error: its last outcome, or what its trainer names in words."""
    if outcome is Outcome.TRAINER_ERROR and message.startswith(NOT_THE_MODEL):
        return VERIFICATION_FAILED
    if message.startswith(CANNOT_BOOT):
        return BOOT_FAILED
    return str(outcome)


def will_not_die(attempt: Attempt, seen: Seen, now: datetime) -> bool:
    """True when machines that should be gone may cost money still, and somebody should be told."""
    late = now - attempt.since > TOO_LONG_TO_DELETE
    left = seen.scale_set is not None or seen.blind
    return attempt.state is AttemptState.TERMINATING and late and left
