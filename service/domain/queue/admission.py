"""Admit queued jobs by quota, fair share and priority, or say why they wait. Pure.

A gang (all machines of a job) is admitted whole or not at all, and a queued job holds nothing:
there is no deadlock. Between projects the one with the fewest GPUs for its weight goes first
(max-min fairness, as in Kueue's fair sharing); within a project the higher priority, then the older
job. A job that does not fit is skipped until it has waited for RESERVATION_DELAY; then capacity is
reserved for it.
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
RESERVATION_DELAY = timedelta(minutes=30)  # waited, and what it needs is kept free for it
# Admitted without machines: after this its cores are free for others.
ADMISSION_HOLD = timedelta(minutes=5)


_Rank = tuple[int, datetime, str]
_RANK = {priority: rank for rank, priority in enumerate(Priority)}


class WaitReason(StrEnum):
    """Why a job waits, as a machine-readable code."""

    JOBS = "project_jobs"  # its project's quota
    GPUS = "project_gpus"
    # The subscription's quota of Spot cores, in every region that it may take
    CORES = "region_cores"
    GANG = "larger_job"  # it would fit, but a job that waits longer goes first
    NEVER = "never_fits"  # more than a quota has in all
    PENDING = "about_to_be_looked_at"


@dataclass(frozen=True, kw_only=True)
class QueueStanding:
    """The last published position of a queued job."""

    since: datetime
    position: int | None  # 1: the next one; None: before the first admission round
    code: WaitReason
    why: str  # no sentence yet

    @property
    def is_for_cores(self) -> bool:
        """Return whether the job lacks Spot cores rather than its turn."""
        return self.code is WaitReason.CORES


@dataclass(frozen=True, kw_only=True)
class RegionRequest:
    """A region that the gang may run in, and the cores that it needs there."""

    region: str
    cores: int  # Spot cores of the whole gang; 0 where no quota of them counts


@dataclass(frozen=True, kw_only=True)
class QueuedJob:
    """A job without admission."""

    job_id: str
    project_id: str
    priority: Priority
    since: datetime
    gpus: int  # of the whole gang
    wants: tuple[RegionRequest, ...]  # best first


@dataclass(frozen=True, kw_only=True)
class ProjectQuota:
    """What a project's jobs may hold at once; None: unlimited."""

    max_jobs: int | None = None
    max_gpus: int | None = None
    weight: float = 1.0  # its share is this part of the sum of all that wait


NO_QUOTA = ProjectQuota()


@dataclass(frozen=True, kw_only=True)
class ProjectUsage:
    """A project with what its admitted jobs hold."""

    id: str
    name: str
    quota: ProjectQuota = NO_QUOTA
    jobs: int = 0
    gpus: int = 0

    def with_job(self, gpus: int) -> Self:
        """Return the usage with one more job of ``gpus`` GPUs."""
        return type(self)(**vars(self) | {"jobs": self.jobs + 1, "gpus": self.gpus + gpus})


@dataclass(frozen=True, kw_only=True)
class RegionCores:
    """The Spot cores of one region; an unknown region is unlimited."""

    limit: int
    others: int  # held by others in the subscription
    own: int  # held by our attempts, or kept for admitted jobs

    @property
    def free(self) -> int:
        """Return the free cores; negative after the quota was lowered."""
        return self.limit - self.others - self.own

    def with_more_cores(self, cores: int) -> Self:
        """Return the usage with ``cores`` more cores held by us."""
        return type(self)(limit=self.limit, others=self.others, own=self.own + cores)


@dataclass(frozen=True, kw_only=True)
class AdmittedJob:
    """A job that may request machines; ``cores`` are reserved for it in ``region``."""

    job_id: str
    region: str = ""
    cores: int = 0


@dataclass(frozen=True, kw_only=True)
class WaitingJob:
    """A job that keeps waiting, with what its user sees."""

    job_id: str
    position: int  # 1: the next one
    code: WaitReason
    why: str  # to follow "it waits:"


@dataclass(frozen=True, kw_only=True)
class AdmissionDecision:
    """Admitted and waiting jobs; every queued job is in one of the two."""

    admitted: tuple[AdmittedJob, ...]
    waiting: tuple[WaitingJob, ...]


def decide_admissions(
    waiting: Iterable[QueuedJob],
    projects: Iterable[ProjectUsage],
    regions: Mapping[str, RegionCores],
    now: datetime,
) -> AdmissionDecision:
    """Decide about every queued job; the order of the arguments does not matter."""
    round_ = _Round({p.id: p for p in projects}, dict(regions), now)
    ranked = sorted((priority_rank(job, now), job) for job in waiting)
    _order_by_share(ranked, round_.projects, round_.admit)
    remaining = [(rank, job) for rank, job in ranked if job.job_id not in round_.admitted]
    in_turn = _order_by_share(remaining, round_.projects, lambda _: True)
    waiting_jobs = [
        WaitingJob(job_id=j.job_id, position=number, code=code, why=why)
        for number, j in enumerate(in_turn, 1)
        for code, why in [round_.refused[j.job_id]]
    ]
    return AdmissionDecision(admitted=tuple(round_.admitted.values()), waiting=tuple(waiting_jobs))


def priority_rank(job: QueuedJob, now: datetime) -> _Rank:
    """Return the sort key of a job within its project; the smallest goes first."""
    aged = _RANK[job.priority] + max((now - job.since) // AGE, 0)
    return -min(aged, _RANK[Priority.HIGH]), job.since, job.job_id


def _order_by_share(
    ranked: Iterable[tuple[_Rank, QueuedJob]],
    projects: Mapping[str, ProjectUsage],
    admits: Callable[[QueuedJob], bool],
) -> list[QueuedJob]:
    """Return all jobs in fair order; a project's share grows with each job that it takes."""
    gpus = {p.id: p.gpus for p in projects.values()}
    weights = {p.id: p.quota.weight for p in projects.values()}
    lines: dict[str, deque[tuple[_Rank, QueuedJob]]] = {}
    for rank, job in ranked:
        lines.setdefault(job.project_id, deque()).append((rank, job))
    turns = [(gpus[name] / weights[name], *line.popleft()) for name, line in lines.items()]
    heapq.heapify(turns)
    done = []
    while turns:
        *_, job = turns[0]
        name = job.project_id
        if admits(job):
            gpus[name] += job.gpus
        done.append(job)
        if line := lines[name]:
            heapq.heapreplace(turns, (gpus[name] / weights[name], *line.popleft()))
        else:
            heapq.heappop(turns)
    return done


class _Round:
    """The capacity that is taken and reserved during one round."""

    def __init__(
        self, projects: dict[str, ProjectUsage], regions: dict[str, RegionCores], now: datetime
    ) -> None:
        self.projects, self._regions, self._now = projects, regions, now
        self._reserved_regions: dict[str, QueuedJob] = {}  # regions, for whom
        self._reserved_projects: dict[str, QueuedJob] = {}  # projects whose GPUs are kept, for whom
        self.admitted: dict[str, AdmittedJob] = {}
        self.refused: dict[str, tuple[WaitReason, str]] = {}

    def admit(self, job: QueuedJob) -> bool:
        """Admit the job, or record why it waits."""
        project = self.projects[job.project_id]
        refusal = self._project_refusal(job, project)
        request = None if refusal else self._find_region(job)
        if request is None:
            self.refused[job.job_id] = refusal or self._region_refusal(job)
            return False
        if (cores := self._regions.get(request.region)) and request.cores:
            self._regions[request.region] = cores.with_more_cores(request.cores)
        self.projects[project.id] = project.with_job(job.gpus)
        self.admitted[job.job_id] = AdmittedJob(
            job_id=job.job_id, region=request.region if request.cores else "", cores=request.cores
        )
        return True

    def _project_refusal(
        self, job: QueuedJob, project: ProjectUsage
    ) -> tuple[WaitReason, str] | None:
        quota, name = project.quota, f"project {project.name}"
        if quota.max_jobs is not None and project.jobs >= quota.max_jobs:
            return (
                WaitReason.JOBS,
                f"{name} has {project.jobs} of its {quota.max_jobs} jobs under way",
            )
        if quota.max_gpus is None:
            return None
        if job.gpus > quota.max_gpus:
            why = f"it needs {job.gpus} GPUs, and the quota of {name} is {quota.max_gpus}"
            return WaitReason.NEVER, f"{why}; ask an operator to raise it"
        if first := self._reserved_projects.get(project.id):
            return WaitReason.GPUS, f"a job of {name} that needs {first.gpus} GPUs waits longer"
        if project.gpus + job.gpus <= quota.max_gpus:
            return None
        if self._is_old(job):
            self._reserved_projects[project.id] = job
        usage = f"{name} holds {project.gpus} of its {quota.max_gpus}"
        return WaitReason.GPUS, f"it needs {job.gpus} GPUs, and {usage}"

    def _find_region(self, job: QueuedJob) -> RegionRequest | None:
        """Return the first region with room that is not reserved for another job."""
        for request in job.wants:
            cores = self._regions.get(request.region) if request.cores else None
            if cores is None or (
                request.cores <= cores.free and request.region not in self._reserved_regions
            ):
                return request
        return None

    def _region_refusal(self, job: QueuedJob) -> tuple[WaitReason, str]:
        """Return why no region has room; reserve the nearest one for an old job."""
        choices = [(request, self._regions[request.region]) for request in job.wants]
        if not choices:
            return WaitReason.NEVER, "none of its regions is allowed; allow other regions"
        request, cores = min(choices, key=lambda k: k[0].cores - k[1].free)
        if self._is_old(job):
            self._reserve_region(job)
        if request.cores <= cores.free:
            first = self._reserved_regions[request.region]
            return (
                WaitReason.GANG,
                f"{request.region} is reserved for a job that has waited longer "
                f"({first.gpus} GPUs)",
            )
        needs = f"it needs {request.cores} Spot cores in {request.region}"
        if all(w.cores > c.limit for w, c in choices):
            remedy = "request a larger quota from Azure, or submit it with fewer nodes"
            return (
                WaitReason.NEVER,
                f"{needs}, and the subscription's quota is {cores.limit}; {remedy}",
            )
        return WaitReason.CORES, f"{needs}, and {max(cores.free, 0)} of {cores.limit} are free"

    def _reserve_region(self, job: QueuedJob) -> None:
        """Reserve the region that lacks the fewest cores, among those that can ever suffice."""
        open_ = [
            (request.cores - cores.free, request.region)
            for request in job.wants
            for cores in [self._regions[request.region]]
            if request.region not in self._reserved_regions
            and request.cores <= cores.limit - cores.others
        ]
        if open_:
            self._reserved_regions[min(open_)[1]] = job

    def _is_old(self, job: QueuedJob) -> bool:
        return self._now - job.since >= RESERVATION_DELAY
