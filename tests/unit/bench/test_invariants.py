"""Each promise is broken by a planted fault, and kept without one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.recovery.book import JobOutcome
from bench.recovery.invariants import doubled, leaked, mismatches, unfinished
from bench.recovery.observed.cluster import Snapshot, SnapshotAttempt, SnapshotScaleSet, Vm


def scale_set(
    attempt: str, job: str = "job-1", name: str = "", state: str = "Succeeded"
) -> SnapshotScaleSet:
    return SnapshotScaleSet(
        name=name or f"rk-{attempt}", job=job, attempt=attempt, state=state, created_at=0.0
    )


def attempt(name: str, number: int, state: str, job: str = "job-1") -> SnapshotAttempt:
    return SnapshotAttempt(id=name, job=job, number=number, state=state, created_at=0.0)


def sight(sets: list[SnapshotScaleSet], *attempts: SnapshotAttempt) -> Snapshot:
    return Snapshot(at=0.0, sets=sets, attempts={a.id: a for a in attempts})


def test_machines_of_one_job_are_doubled_unless_the_attempt_before_gives_them_back() -> None:
    first, second, other_job = attempt("a1", 1, "running"), attempt("a2", 2, "starting"), "job-2"
    leaves = attempt("a1", 1, "terminating")
    scale_sets = [scale_set("a1"), scale_set("a2")]
    duplicated = sight([scale_set("a1"), scale_set("a1", name="rk-other")], first)
    two_jobs = sight(
        [scale_sets[0], scale_set("b1", job=other_job)],
        first,
        attempt("b1", 1, "running", other_job),
    )

    assert list(doubled(duplicated)) == ["attempt a1 has 2 scale sets: rk-a1, rk-other"]
    assert len(list(doubled(sight(scale_sets, first, second)))) == 1
    assert not list(doubled(sight(scale_sets, leaves, second)))
    assert not list(doubled(two_jobs))


def test_whatever_exists_after_the_last_job_is_leaked() -> None:
    vm = Vm(
        scale_set="rk-a1", instance_id="0", vm_id="v", state="running", pid=7, folder=Path("/vm")
    )
    snapshot = Snapshot(at=0.0, sets=[scale_set("a1")], vms=[vm])

    assert leaked(snapshot, ["7 python"]) == [
        "scale set rk-a1 (Succeeded) of job job-1",
        "machine rk-a1/0 (running)",
        "process 7 python",
    ]
    assert leaked(Snapshot(at=0.0), []) == []


TWIN = JobOutcome(job="t", state="succeeded", parameters_sha256="aa", losses={1: 0.5, 2: 0.25})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"parameters_sha256": "bb"}, ["j: parameters bb, its twin's aa"]),
        ({"losses": {1: 0.5, 2: 0.25000000000000006}}, None),
        ({"losses": {1: 0.5}}, None),
    ],
    ids=["none", "the hash", "the last bit of a loss", "a loss is missing"],
)
def test_whatever_differs_from_the_twin_is_a_mismatch(
    change: dict[str, Any], expected: list[str] | None
) -> None:
    reported = list(mismatches(replace(TWIN, job="j", **change), TWIN))

    assert len(reported) == 1 if expected is None else reported == expected


def test_a_job_that_failed_is_unfinished() -> None:
    assert unfinished([TWIN]) == []
    assert unfinished([JobOutcome(job="j", state="failed", error="why")]) == ["j: failed why"]
