"""Who is let in: quotas hold, nothing that fits waits, shares are fair, and nobody starves."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.choices import Priority
from service.domain.queue.admission import (
    AGE,
    RESERVATION_DELAY,
    AdmissionDecision,
    ProjectQuota,
    ProjectUsage,
    QueuedJob,
    RegionCores,
    RegionRequest,
    WaitingJob,
    WaitReason,
    decide_admissions,
)

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
LOW, NORMAL, HIGH = Priority
EAST, WEST = "eastus", "westus3"
CORES_PER_GPU = 12  # of Standard_ND96amsr_A100_v4


def job(name: str, project: str = "alpha", gpus: int = 8, **changes: object) -> QueuedJob:
    """Return a job of one machine that has waited for a minute and may run in eastus."""
    queued = QueuedJob(
        job_id=name,
        project_id=project,
        priority=NORMAL,
        since=NOW - timedelta(minutes=1),
        gpus=gpus,
        wants=(RegionRequest(region=EAST, cores=gpus * CORES_PER_GPU),),
    )
    return replace(queued, **changes)  # type: ignore[arg-type]  # by name


def project(name: str = "alpha", jobs: int = 0, gpus: int = 0, **quota: float) -> ProjectUsage:
    return ProjectUsage(id=name, name=name, jobs=jobs, gpus=gpus, quota=ProjectQuota(**quota))  # type: ignore[arg-type]  # by name


def cores(gpus: int, *, own: int = 0, others: int = 0) -> RegionCores:
    """Room for so many GPUs in all."""
    return RegionCores(
        limit=gpus * CORES_PER_GPU, own=own * CORES_PER_GPU, others=others * CORES_PER_GPU
    )


def names(decision: AdmissionDecision) -> list[str]:
    return [a.job_id for a in decision.admitted]


def waiting_job(decision: AdmissionDecision, name: str) -> WaitingJob:
    return next(t for t in decision.waiting if t.job_id == name)


def ago(**span: float) -> datetime:
    return NOW - timedelta(**span)


def test_the_higher_priority_goes_first_then_the_older_job() -> None:
    jobs = [
        job("old-low", priority=LOW, since=ago(minutes=9)),
        job("young", since=ago(minutes=1)),
        job("older", since=ago(minutes=2)),
        job("high", priority=HIGH, since=NOW),
    ]
    decision = decide_admissions(jobs, [project(max_jobs=1)], {}, NOW)
    assert names(decision) == ["high"]
    assert [t.job_id for t in decision.waiting] == ["older", "young", "old-low"]


def test_a_job_that_has_waited_long_ranks_higher() -> None:
    jobs = [job("low", priority=LOW, since=NOW - 2 * AGE), job("high", priority=HIGH)]
    assert names(decide_admissions(jobs, [project(max_jobs=1)], {}, NOW)) == ["low"]


def test_the_project_with_the_fewest_gpus_for_its_weight_goes_first() -> None:
    jobs = [job("rich", "alpha", priority=HIGH), job("poor", "beta", priority=LOW)]
    projects = [project("alpha", jobs=1, gpus=8), project("beta")]
    assert names(decide_admissions(jobs, projects, {EAST: cores(8)}, NOW)) == ["poor"], (
        "in spite of priority"
    )

    projects = [project("alpha", jobs=1, gpus=8, weight=4), project("beta", jobs=1, gpus=8)]
    assert names(decide_admissions(jobs, projects, {EAST: cores(8)}, NOW)) == ["rich"]


def test_a_job_takes_the_first_of_its_regions_with_room() -> None:
    regions = (RegionRequest(region=EAST, cores=96), RegionRequest(region=WEST, cores=96))
    decision = decide_admissions(
        [job("a", wants=regions)], [project()], {EAST: cores(0), WEST: cores(8)}, NOW
    )
    assert [(a.region, a.cores) for a in decision.admitted] == [(WEST, 96)]


@pytest.mark.parametrize(
    ("waiting", "usage", "code", "reason"),
    [
        (
            job("a"),
            project(jobs=4, max_jobs=4),
            WaitReason.JOBS,
            "project alpha has 4 of its 4 jobs under way",
        ),
        (
            job("a", gpus=16),
            project(jobs=2, gpus=56, max_gpus=64),
            WaitReason.GPUS,
            "it needs 16 GPUs, and project alpha holds 56 of its 64",
        ),
        (
            job("a", gpus=128),
            project(max_gpus=64),
            WaitReason.NEVER,
            "it needs 128 GPUs, and the quota of project alpha is 64; ask an operator to raise it",
        ),
        (
            job("a", gpus=16),
            project(),
            WaitReason.CORES,
            "it needs 192 Spot cores in eastus, and 96 of 480 are free",
        ),
        (
            job("a", gpus=48),
            project(),
            WaitReason.NEVER,
            "it needs 576 Spot cores in eastus, and the subscription's quota is 480; "
            "request a larger quota from Azure, or submit it with fewer nodes",
        ),
    ],
)
def test_who_waits_is_told_why(
    waiting: QueuedJob, usage: ProjectUsage, code: WaitReason, reason: str
) -> None:
    decision = decide_admissions([waiting], [usage], {EAST: cores(40, own=20, others=12)}, NOW)
    assert decision.waiting == (WaitingJob(job_id="a", position=1, code=code, why=reason),)


def test_small_jobs_go_past_a_large_one_until_it_has_waited_long() -> None:
    small, room = job("small"), {EAST: cores(32, own=24)}
    patient = job("large", gpus=32, since=NOW - RESERVATION_DELAY + timedelta(seconds=1))
    assert names(decide_admissions([patient, small], [project()], room, NOW)) == ["small"]

    tired = job("large", gpus=32, since=NOW - RESERVATION_DELAY)
    decision = decide_admissions([tired, small], [project()], room, NOW)
    assert names(decision) == []
    assert waiting_job(decision, "small").code is WaitReason.GANG


def test_what_is_kept_for_a_large_job_is_kept_in_one_region_only() -> None:
    regions = (RegionRequest(region=EAST, cores=384), RegionRequest(region=WEST, cores=384))
    tired = job("large", gpus=32, wants=regions, since=ago(hours=1))
    west = job("west", wants=(RegionRequest(region=WEST, cores=96),))
    room = {EAST: cores(32, own=8), WEST: cores(32, own=24)}
    decision = decide_admissions([tired, job("east"), west], [project()], room, NOW)
    assert names(decision) == ["west"], "eastus lacks fewer cores"


def test_nothing_is_kept_for_what_can_never_fit() -> None:
    never = job("never", gpus=64, since=ago(days=9))
    assert names(decide_admissions([never, job("a")], [project()], {EAST: cores(32)}, NOW)) == ["a"]


def test_a_project_with_a_large_old_job_keeps_its_gpus_for_it() -> None:
    old_job = job("old", gpus=32, since=ago(hours=1))
    decision = decide_admissions(
        [old_job, job("new")], [project(jobs=1, gpus=8, max_gpus=32)], {}, NOW
    )
    assert names(decision) == []
    assert waiting_job(decision, "new").code is WaitReason.GPUS
    assert "needs 32 GPUs waits longer" in waiting_job(decision, "new").why


def test_projects_that_wait_take_turns_in_the_queue() -> None:
    many = [job(f"a{n}", "alpha", since=ago(minutes=9 - n)) for n in range(3)]
    decision = decide_admissions(
        [*many, job("b", "beta")], [project(), project("beta")], {EAST: cores(0)}, NOW
    )
    assert [t.job_id for t in decision.waiting] == ["a0", "b", "a1", "a2"]
    assert [t.position for t in decision.waiting] == [1, 2, 3, 4]


_projects = st.lists(
    st.builds(
        ProjectQuota,
        max_jobs=st.none() | st.integers(0, 4),
        max_gpus=st.none() | st.integers(0, 64),
        weight=st.sampled_from([0.5, 1.0, 3.0]),
    ),
    min_size=1,
    max_size=4,
)
_asked = st.tuples(
    st.integers(0, 3),
    st.sampled_from(Priority),
    st.integers(0, 300),
    st.sampled_from([8, 16, 32, 64]),
    st.lists(st.sampled_from([EAST, WEST, "unknown"]), min_size=1, max_size=3, unique=True),
)
_rooms = st.fixed_dictionaries({EAST: st.integers(0, 80), WEST: st.integers(0, 80)})


@settings(max_examples=40)
@given(_projects, st.lists(_asked, max_size=25), _rooms, st.randoms(use_true_random=False))
def test_quotas_hold_nothing_that_fits_waits_and_order_of_rows_does_not_matter(
    quotas: list[ProjectQuota],
    requests: list[tuple[int, Priority, int, int, list[str]]],
    rooms: dict[str, int],
    random: st.DrawFn,
) -> None:
    projects = {f"p{n}": ProjectUsage(id=f"p{n}", name="p", quota=q) for n, q in enumerate(quotas)}
    regions = {region: cores(room) for region, room in rooms.items()}
    jobs = [
        job(
            f"j{n:02}",
            f"p{whose % len(quotas)}",
            gpus,
            priority=priority,
            since=ago(minutes=waited),
            wants=tuple(RegionRequest(region=r, cores=gpus * CORES_PER_GPU) for r in region_names),
        )
        for n, (whose, priority, waited, gpus, region_names) in enumerate(requests)
    ]
    decision = decide_admissions(jobs, projects.values(), regions, NOW)

    by_id = {j.job_id: j for j in jobs}
    usages, free = dict(projects), dict(regions)
    for admitted in decision.admitted:
        admitted_job = by_id[admitted.job_id]
        usages[admitted_job.project_id] = usages[admitted_job.project_id].with_job(
            admitted_job.gpus
        )
        if admitted.region in free:
            free[admitted.region] = free[admitted.region].with_more_cores(admitted.cores)
    for p in usages.values():
        assert p.quota.max_jobs is None or p.jobs <= p.quota.max_jobs
        assert p.quota.max_gpus is None or p.gpus <= p.quota.max_gpus
    assert all(c.free >= 0 for c in free.values())

    assert sorted([*names(decision), *(t.job_id for t in decision.waiting)]) == sorted(by_id)
    for waits in decision.waiting:
        if waits.code is not WaitReason.GANG and "waits longer" not in waits.why:  # else it is kept
            assert not _fits(by_id[waits.job_id], usages, free), waits

    shuffled = list(jobs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # it is a Random
    assert decide_admissions(shuffled, list(projects.values())[::-1], regions, NOW) == decision


def _fits(
    waiting: QueuedJob, usages: dict[str, ProjectUsage], free: dict[str, RegionCores]
) -> bool:
    p = usages[waiting.project_id]
    if p.quota.max_jobs is not None and p.jobs >= p.quota.max_jobs:
        return False
    if p.quota.max_gpus is not None and p.gpus + waiting.gpus > p.quota.max_gpus:
        return False
    return any(w.region not in free or w.cores <= free[w.region].free for w in waiting.wants)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from([1.0, 2.0, 5.0]), st.integers(0, 9)), min_size=2, max_size=5)
)
def test_shares_of_projects_that_wait_differ_by_less_than_a_gang(
    demands: list[tuple[float, int]],
) -> None:
    """Max-min fair: with endless queues, all end within one gang of the same GPUs per weight."""
    largest = 64
    projects = [project(f"p{n}", weight=weight) for n, (weight, _) in enumerate(demands)]
    jobs = [
        job(f"j{n}-{k:02}", p.id, 8 << (n + seed + k) % 4)
        for n, (p, (_, seed)) in enumerate(zip(projects, demands, strict=True))
        for k in range(60)
    ]
    decision = decide_admissions(jobs, projects, {EAST: cores(320)}, NOW)
    sizes = {j.job_id: (j.project_id, j.gpus) for j in jobs}
    gpus = {p.id: 0 for p in projects}
    for name in names(decision):
        gpus[sizes[name][0]] += sizes[name][1]
    ideal = 320 / sum(p.quota.weight for p in projects)
    for p in projects:
        assert abs(gpus[p.id] - ideal * p.quota.weight) <= largest * max(p.quota.weight, 1), gpus


@dataclass
class Pool:
    """Simulated hours: a region that jobs come to and go from, decided minute by minute."""

    room: int
    projects: dict[str, ProjectQuota]
    length: timedelta  # of every job

    def run(
        self, arrivals: Sequence[tuple[datetime, QueuedJob]], until: datetime
    ) -> dict[str, datetime]:
        """When each job was let in."""
        waiting: dict[str, QueuedJob] = {}
        running: dict[str, tuple[QueuedJob, datetime]] = {}
        let_in, coming, now = {}, sorted(arrivals, key=lambda a: a[0]), NOW
        while now < until:
            while coming and coming[0][0] <= now:
                arrived = coming.pop(0)[1]
                waiting[arrived.job_id] = replace(arrived, since=now)
            running = {n: r for n, r in running.items() if r[1] > now}
            for name in names(
                decide_admissions(waiting.values(), self._usage(running), self._free(running), now)
            ):
                running[name] = (waiting.pop(name), now + self.length)
                let_in[name] = now
            now += timedelta(minutes=10)
        return let_in

    def _usage(self, running: dict[str, tuple[QueuedJob, datetime]]) -> list[ProjectUsage]:
        usages = {n: ProjectUsage(id=n, name=n, quota=q) for n, q in self.projects.items()}
        for running_job, _ in running.values():
            usages[running_job.project_id] = usages[running_job.project_id].with_job(
                running_job.gpus
            )
        return list(usages.values())

    def _free(self, running: dict[str, tuple[QueuedJob, datetime]]) -> dict[str, RegionCores]:
        return {EAST: cores(self.room, own=sum(r.gpus for r, _ in running.values()))}


def _stream(
    project_: str, every: timedelta, hours: int, **changes: object
) -> list[tuple[datetime, QueuedJob]]:
    count = timedelta(hours=hours) // every
    return [(NOW + n * every, job(f"{project_}-{n:03}", project_, **changes)) for n in range(count)]  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize(
    "victim", [job("victim", "alpha", priority=LOW), job("victim", "alpha", 32)]
)
def test_a_stream_of_small_jobs_of_high_priority_starves_nobody(victim: QueuedJob) -> None:
    """The bound: twice AGE, then whatever its project sent before it, then the longest job."""
    length = timedelta(hours=1)
    pool = Pool(room=32, projects={"alpha": ProjectQuota(), "beta": ProjectQuota()}, length=length)
    rivals = _stream("alpha", timedelta(minutes=10), 24, priority=HIGH)
    rivals += _stream("beta", timedelta(minutes=10), 24, priority=HIGH)
    begins = NOW + timedelta(hours=1)  # the region is full by then
    let_in = pool.run([*rivals, (begins, victim)], NOW + timedelta(hours=24))

    assert let_in["victim"] - begins <= 2 * AGE + length, "what came before it is long over"
