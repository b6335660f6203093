"""Record of a run: kills, generations, outcomes of jobs, and broken promises."""

from dataclasses import dataclass, field

from bench.recovery.plan import Kill, KillKind, Phase
from contract.choices import Engine

Curve = dict[int, float]  # loss by step


@dataclass(kw_only=True)
class Strike:
    """One kill and its consequences; times are in Unix seconds."""

    kill: Kill
    phase: Phase  # phase at the time of the kill
    slot: int
    job: str
    attempt: str  # the job's newest attempt
    generation: int  # newest generation on its machines; 0: none yet
    at: float
    step: int  # last finished step, by the machine's disk
    periodic_step: int = 0  # step of the newest periodic checkpoint
    back_at: float | None = None  # when the service answered again
    first_step_at: float | None = None  # first step of the next generation
    next_generation: int = 0
    lost_steps: int | None = None  # repeated steps
    in_azureml: bool = False  # whether the machine is an Azure ML node
    is_printed: bool = False  # whether its line is printed

    @property
    def kind(self) -> KillKind:
        """Kind of the kill; an eviction in Azure ML counts as a preemption."""
        unnoticed = self.in_azureml and self.kill.kind is KillKind.EVICT
        return KillKind.PREEMPT if unnoticed else self.kill.kind

    @property
    def affects_all_jobs(self) -> bool:
        """Whether the kill affects all jobs, as a kill of the service does."""
        return self.kind is KillKind.SERVICE


@dataclass(kw_only=True)
class ObservedGeneration:
    """One generation, as read from the machines' disks."""

    job: str
    number: int
    attempt: str
    loaded_step: int
    first_step_at: float | None = None
    last_step: int = 0


@dataclass(frozen=True, kw_only=True)
class JobOutcome:
    """Final state, parameters and losses of a job."""

    job: str
    state: str
    error: str = ""
    parameters_sha256: str = ""
    losses: Curve = field(default_factory=dict)


@dataclass
class Book:
    """Everything recorded in a run, in chronological order."""

    kills: int
    seed: int
    strikes: list[Strike] = field(default_factory=list)
    generations: dict[tuple[str, int], ObservedGeneration] = field(default_factory=dict)
    machines_up_at: dict[str, float] = field(default_factory=dict)  # by attempt, its last machine
    sets_created_at: dict[str, float] = field(default_factory=dict)  # by attempt, its scale set
    engines: dict[str, Engine] = field(default_factory=dict)  # by attempt
    twins: list[JobOutcome] = field(default_factory=list)
    outcomes: list[JobOutcome] = field(default_factory=list)  # of the killed jobs
    leaked: list[str] | None = None  # None: not checked yet
    doubled: set[str] = field(default_factory=set)
    torn: set[str] = field(default_factory=set)
    mismatches: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    checked_checkpoints: int = 0
    snapshots: int = 0

    def note_generation(self, generation: ObservedGeneration) -> bool:
        """Add a generation or update a known one; return whether it is new."""
        recorded = self.generations.setdefault((generation.job, generation.number), generation)
        if recorded is not generation:
            recorded.first_step_at = recorded.first_step_at or generation.first_step_at
            recorded.last_step = max(recorded.last_step, generation.last_step)
        return recorded is generation

    def generation_after(self, strike: Strike) -> ObservedGeneration | None:
        """Return the first generation after a kill that finished a step."""
        later = (
            g
            for (job, number), g in self.generations.items()
            if job == strike.job and number > strike.generation and g.first_step_at
        )
        return min(later, key=lambda g: g.number, default=None)

    def is_isolated(self, strike: Strike) -> bool:
        """Return whether no other kill affected this job between the kill and the next step."""
        until = strike.first_step_at
        assert until is not None, "only what has recovered can be asked"
        for other in self.strikes:
            if other is strike or not (other.affects_all_jobs or other.job == strike.job):
                continue
            end = other.back_at or other.first_step_at or until
            if other.at <= until and end >= strike.at:
                return False
        return True
