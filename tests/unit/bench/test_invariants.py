"""Each promise is broken by a planted fault, and kept without one."""

from pathlib import Path

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


def test_two_scale_sets_of_one_attempt_are_doubled() -> None:
    seen = sight([scale_set("a1"), scale_set("a1", name="rk-other")], attempt("a1", 1, "running"))

    assert list(doubled(seen)) == ["attempt a1 has 2 scale sets: rk-a1, rk-other"]


def test_two_attempts_of_one_job_that_both_hold_machines_are_doubled() -> None:
    attempts = attempt("a1", 1, "running"), attempt("a2", 2, "starting")

    assert len(list(doubled(sight([scale_set("a1"), scale_set("a2")], *attempts)))) == 1


def test_an_attempt_that_gives_its_machines_back_may_overlap_with_the_next() -> None:
    attempts = attempt("a1", 1, "terminating"), attempt("a2", 2, "starting")

    assert not list(doubled(sight([scale_set("a1"), scale_set("a2")], *attempts)))


def test_two_jobs_may_hold_machines_at_once() -> None:
    sets = [scale_set("a1"), scale_set("b1", job="job-2")]
    attempts = attempt("a1", 1, "running"), attempt("b1", 1, "running", job="job-2")

    assert not list(doubled(sight(sets, *attempts)))


def test_whatever_exists_after_the_last_job_is_leaked() -> None:
    vm = Vm(
        scale_set="rk-a1", instance_id="0", vm_id="v", state="running", pid=7, folder=Path("/vm")
    )
    seen = Snapshot(at=0.0, sets=[scale_set("a1")], vms=[vm])

    assert leaked(seen, ["7 python"]) == [
        "scale set rk-a1 (Succeeded) of job job-1",
        "machine rk-a1/0 (running)",
        "process 7 python",
    ]
    assert leaked(Snapshot(at=0.0), []) == []


TWIN = JobOutcome(job="t", state="succeeded", parameters_sha256="aa", losses={1: 0.5, 2: 0.25})


def test_a_job_with_the_hash_and_losses_of_its_twin_matches() -> None:
    same = JobOutcome(job="j", state="succeeded", parameters_sha256="aa", losses=TWIN.losses)

    assert not list(mismatches(same, TWIN))


def test_another_hash_is_a_mismatch() -> None:
    other = JobOutcome(job="j", state="succeeded", parameters_sha256="bb", losses=TWIN.losses)

    assert list(mismatches(other, TWIN)) == ["j: parameters bb, its twin's aa"]


def test_one_loss_that_differs_in_its_last_bit_is_a_mismatch() -> None:
    losses = {1: 0.5, 2: 0.25000000000000006}
    other = JobOutcome(job="j", state="succeeded", parameters_sha256="aa", losses=losses)

    assert len(list(mismatches(other, TWIN))) == 1


def test_a_loss_that_is_missing_is_a_mismatch() -> None:
    other = JobOutcome(job="j", state="succeeded", parameters_sha256="aa", losses={1: 0.5})

    assert len(list(mismatches(other, TWIN))) == 1


def test_a_job_that_failed_is_unfinished() -> None:
    assert unfinished([TWIN]) == []
    assert unfinished([JobOutcome(job="j", state="failed", error="why")]) == ["j: failed why"]
