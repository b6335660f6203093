"""What a run of the benchmark writes down: strikes, generations, jobs, broken promises."""

from dataclasses import dataclass, field

from bench.recovery.plan import Kill, Kind, Phase
from contract.choices import Engine

Curve = dict[int, float]  # loss by step


@dataclass(kw_only=True)
class Strike:
    """One kill as it happened."""

    kill: Kill
    phase: Phase  # that it really hit
    slot: int
    job: str
    attempt: str  # the job's newest
    generation: int  # the newest on its machines; 0: none yet
    at: float
    step: int  # the last one finished, as the machine's disk said at that moment
    periodic_step: int = 0  # of the newest periodic checkpoint then
    back_at: float | None = None  # when the service answered again
    first_step_at: float | None = None  # of the next generation
    next_generation: int = 0
    lost: int | None = None  # steps done again
    in_azureml: bool = False  # what was struck was a node there
    told: bool = False  # its line was printed

    @property
    def kind(self) -> Kind:
        """What was struck, and how."""
        unnoticed = self.in_azureml and self.kill.kind is Kind.EVICT
        return Kind.PREEMPT if unnoticed else self.kill.kind

    @property
    def hits_everyone(self) -> bool:
        """The service is everybody's."""
        return self.kind is Kind.SERVICE


@dataclass(kw_only=True)
class Generation:
    """One generation as the machines' disks showed it."""

    job: str
    number: int
    attempt: str
    loaded_step: int
    first_step_at: float | None = None
    last_step: int = 0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ended."""

    job: str
    state: str
    error: str = ""
    parameters_sha256: str = ""
    losses: Curve = field(default_factory=dict)


@dataclass
class Book:
    """Everything, in the order in which it happened."""

    kills: int
    seed: int
    strikes: list[Strike] = field(default_factory=list)
    generations: dict[tuple[str, int], Generation] = field(default_factory=dict)
    machines_up_at: dict[str, float] = field(default_factory=dict)  # attempt -> its last machine
    sets_made_at: dict[str, float] = field(default_factory=dict)  # attempt -> its scale set
    engines: dict[str, Engine] = field(default_factory=dict)  # attempt -> what ran its machines
    twins: list[Outcome] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)  # of the disturbed jobs
    leaked: list[str] | None = None  # None: not looked yet
    doubled: set[str] = field(default_factory=set)
    torn: set[str] = field(default_factory=set)
    mismatches: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    checked_checkpoints: int = 0
    looks: int = 0

    def note_generation(self, seen: Generation) -> bool:
        """Add one, or what is new of it; True when it had not been seen before."""
        known = self.generations.setdefault((seen.job, seen.number), seen)
        if known is not seen:
            known.first_step_at = known.first_step_at or seen.first_step_at
            known.last_step = max(known.last_step, seen.last_step)
        return known is seen

    def after(self, strike: Strike) -> Generation | None:
        """The first generation after a strike that did a step."""
        later = (
            g
            for (job, number), g in self.generations.items()
            if job == strike.job and number > strike.generation and g.first_step_at
        )
        return min(later, key=lambda g: g.number, default=None)

    def alone(self, strike: Strike) -> bool:
        """Whether nothing else struck this job between the strike and the next step."""
        until = strike.first_step_at
        assert until is not None, "only what has recovered can be asked"
        for other in self.strikes:
            if other is strike or not (other.hits_everyone or other.job == strike.job):
                continue
            end = other.back_at or other.first_step_at or until
            if other.at <= until and end >= strike.at:
                return False
        return True
