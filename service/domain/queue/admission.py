"""Which of the jobs that wait may ask for machines now, and why the others may not yet. Pure.

A gang (all machines of a job) is let in whole or not at all, and who waits holds nothing: there is
no deadlock. Between projects the one with the fewest GPUs for its weight goes first (max-min fair,
the order of Kueue's fair sharing); within a project the higher priority, then the older job. What
does not fit is passed by, until it has waited for RESERVES: then nothing goes past it.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Self

from contract.choices import Priority

AGE = timedelta(hours=2)  # waited, and a job ranks one priority higher: after 4 h all rank high
BEAT = timedelta(seconds=5)  # the queue is looked at so often though nothing has changed
RESERVES = timedelta(minutes=30)  # waited, and what it needs is kept free for it
KEPT = timedelta(minutes=5)  # let in and without machines: others may then have its cores


_Rank = tuple[int, datetime, str]
_RANK = {priority: rank for rank, priority in enumerate(Priority)}


class Code(StrEnum):
    """What a job waits for, as a word for machines."""

    JOBS = "project_jobs"  # its project's quota
    GPUS = "project_gpus"
    CORES = (
        "region_cores"  # the subscription's quota of Spot cores, in every region that it may take
    )
    GANG = "larger_job"  # it would fit, but a job that waits longer goes first
    NEVER = "never_fits"  # more than a quota has in all
    LOOK = "about_to_be_looked_at"


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a job that waits is in the queue, as it was told last."""

    since: datetime
    position: int | None  # 1: the next one; None: nobody has looked yet
    code: Code
    why: str  # no sentence yet

    @property
    def is_for_cores(self) -> bool:
        """Whether it lacks machines, not its turn."""
        return self.code is Code.CORES


@dataclass(frozen=True, kw_only=True)
class Want:
    """A region that the gang may take."""

    region: str
    cores: int  # Spot cores of the whole gang; 0 where no quota of them counts


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A job that holds no admission."""

    job_id: str
    project_id: str
    priority: Priority
    since: datetime
    gpus: int  # of the whole gang
    wants: tuple[Want, ...]  # best first


@dataclass(frozen=True, kw_only=True)
class Quota:
    """What a project's jobs may hold at once; None: any number."""

    max_jobs: int | None = None
    max_gpus: int | None = None
    weight: float = 1.0  # its share is this part of the sum of all that wait


NO_QUOTA = Quota()


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project with what its admitted jobs hold."""

    id: str
    name: str
    quota: Quota = NO_QUOTA
    jobs: int = 0
    gpus: int = 0

    def with_one(self, gpus: int) -> Self:
        """After one more job of so many GPUs."""
        return type(self)(**vars(self) | {"jobs": self.jobs + 1, "gpus": self.gpus + gpus})


@dataclass(frozen=True, kw_only=True)
class Cores:
    """Spot cores of one region; a region that is not known is not limited."""

    limit: int
    others: int  # held by who is not us
    ours: int  # held by our attempts, or kept for admitted jobs

    @property
    def free(self) -> int:
        """Below zero when the quota was lowered."""
        return self.limit - self.others - self.ours

    def with_more(self, cores: int) -> Self:
        """After one more gang."""
        return type(self)(limit=self.limit, others=self.others, ours=self.ours + cores)


@dataclass(frozen=True, kw_only=True)
class Admitted:
    """A job that may ask for machines; ``cores`` are kept for it in ``region``."""

    job_id: str
    region: str = ""
    cores: int = 0


@dataclass(frozen=True, kw_only=True)
class Told:
    """A job that goes on waiting: what its user sees."""

    job_id: str
    position: int  # 1: the next one
    code: Code
    why: str  # to follow "it waits:"


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Every job that was given is in one of the two."""

    admitted: tuple[Admitted, ...]
    told: tuple[Told, ...]


def decide(
    waiting: Iterable[Waiting],
    projects: Iterable[Project],
    regions: Mapping[str, Cores],
    now: datetime,
) -> Decision:
    """Let in whoever may; the same facts in another order give the same answer."""
    round_ = _Round({p.id: p for p in projects}, dict(regions), now)
    ranked = sorted((rank(job, now), job) for job in waiting)
    _in_turn(ranked, round_.projects, round_.let_in)
    left = [(place, job) for place, job in ranked if job.job_id not in round_.admitted]
    in_turn = _in_turn(left, round_.projects, lambda _: True)
    told = [
        Told(job_id=j.job_id, position=number, code=code, why=why)
        for number, j in enumerate(in_turn, 1)
        for code, why in [round_.refused[j.job_id]]
    ]
    return Decision(admitted=tuple(round_.admitted.values()), told=tuple(told))


def rank(job: Waiting, now: datetime) -> _Rank:
    """The order within a project, first the smallest."""
    aged = _RANK[job.priority] + max((now - job.since) // AGE, 0)
    return -min(aged, _RANK[Priority.HIGH]), job.since, job.job_id


def _in_turn(
    ranked: Iterable[tuple[_Rank, Waiting]],
    projects: Mapping[str, Project],
    takes: Callable[[Waiting], bool],
) -> list[Waiting]:
    """Every job once, in the order of turns; a project's share grows with each that it takes."""
    gpus = {p.id: p.gpus for p in projects.values()}
    weights = {p.id: p.quota.weight for p in projects.values()}
    lines: dict[str, deque[tuple[_Rank, Waiting]]] = {}
    for place, job in ranked:
        lines.setdefault(job.project_id, deque()).append((place, job))
    turns = [(gpus[name] / weights[name], *line.popleft()) for name, line in lines.items()]
    heapq.heapify(turns)
    done = []
    while turns:
        *_, job = turns[0]
        name = job.project_id
        if takes(job):
            gpus[name] += job.gpus
        done.append(job)
        if line := lines[name]:
            heapq.heapreplace(turns, (gpus[name] / weights[name], *line.popleft()))
        else:
            heapq.heappop(turns)
    return done


class _Round:
    """What is held while one round goes on."""

    def __init__(
        self, projects: dict[str, Project], regions: dict[str, Cores], now: datetime
    ) -> None:
        self.projects, self._regions, self._now = projects, regions, now
        self._kept: dict[str, Waiting] = {}  # regions, for whom
        self._closed: dict[str, Waiting] = {}  # projects whose GPUs are kept, for whom
        self.admitted: dict[str, Admitted] = {}
        self.refused: dict[str, tuple[Code, str]] = {}

    def let_in(self, job: Waiting) -> bool:
        """Admit it, or note why not."""
        project = self.projects[job.project_id]
        refusal = self._of_project(job, project)
        want = None if refusal else self._place(job)
        if want is None:
            self.refused[job.job_id] = refusal or self._of_regions(job)
            return False
        if (cores := self._regions.get(want.region)) and want.cores:
            self._regions[want.region] = cores.with_more(want.cores)
        self.projects[project.id] = project.with_one(job.gpus)
        self.admitted[job.job_id] = Admitted(
            job_id=job.job_id, region=want.region if want.cores else "", cores=want.cores
        )
        return True

    def _of_project(self, job: Waiting, project: Project) -> tuple[Code, str] | None:
        quota, name = project.quota, f"project {project.name}"
        if quota.max_jobs is not None and project.jobs >= quota.max_jobs:
            return Code.JOBS, f"{name} has {project.jobs} of its {quota.max_jobs} jobs under way"
        if quota.max_gpus is None:
            return None
        if job.gpus > quota.max_gpus:
            why = f"it needs {job.gpus} GPUs, and {name} may hold {quota.max_gpus} in all"
            return Code.NEVER, f"{why}; whoever runs the service can raise that"
        if first := self._closed.get(project.id):
            return Code.GPUS, f"a job of {name} that needs {first.gpus} GPUs waits longer"
        if project.gpus + job.gpus <= quota.max_gpus:
            return None
        if self._is_old(job):
            self._closed[project.id] = job
        held = f"{name} holds {project.gpus} of its {quota.max_gpus}"
        return Code.GPUS, f"it needs {job.gpus} GPUs, and {held}"

    def _place(self, job: Waiting) -> Want | None:
        """The first region with room that is not kept for another job."""
        for want in job.wants:
            cores = self._regions.get(want.region) if want.cores else None
            if cores is None or (want.cores <= cores.free and want.region not in self._kept):
                return want
        return None

    def _of_regions(self, job: Waiting) -> tuple[Code, str]:
        """Why there is no place; has the nearest one kept for it once it has waited long."""
        known = [(want, self._regions[want.region]) for want in job.wants]
        if not known:
            return Code.NEVER, "none of its regions may be taken; leave it others"
        want, cores = min(known, key=lambda k: k[0].cores - k[1].free)
        if self._is_old(job):
            self._keep(job)
        if want.cores <= cores.free:
            first = self._kept[want.region]
            return (
                Code.GANG,
                f"a job that waits longer is to have {want.region} ({first.gpus} GPUs)",
            )
        needs = f"it needs {want.cores} Spot cores in {want.region}"
        if all(w.cores > c.limit for w, c in known):
            more = "ask Azure for a larger quota, or submit it with fewer nodes"
            return Code.NEVER, f"{needs}, and the subscription has {cores.limit} in all; {more}"
        return Code.CORES, f"{needs}, and {max(cores.free, 0)} of {cores.limit} are free"

    def _keep(self, job: Waiting) -> None:
        """The region that lacks the fewest cores, of those that can ever have enough."""
        open_ = [
            (want.cores - cores.free, want.region)
            for want in job.wants
            for cores in [self._regions[want.region]]
            if want.region not in self._kept and want.cores <= cores.limit - cores.others
        ]
        if open_:
            self._kept[min(open_)[1]] = job

    def _is_old(self, job: Waiting) -> bool:
        return self._now - job.since >= RESERVES
