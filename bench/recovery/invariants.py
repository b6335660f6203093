"""Promises that no kill may break, as pure functions that return the evidence."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from bench.recovery.book import JobOutcome
from bench.recovery.observed.cluster import Snapshot


def doubled(snapshot: Snapshot) -> Iterator[str]:
    """Yield attempts with several scale sets, and jobs with several attempts that hold machines.

    An attempt that is releasing its machines may overlap with the next one.
    """
    by_attempt = defaultdict(list)
    for scale_set in snapshot.sets:
        by_attempt[scale_set.attempt].append(scale_set.name)
    for attempt, names in by_attempt.items():
        if len(names) > 1:
            yield f"attempt {attempt} has {len(names)} scale sets: {', '.join(sorted(names))}"
    by_job = defaultdict(set)
    for scale_set in snapshot.sets:
        attempt_row = snapshot.attempts.get(scale_set.attempt)
        if attempt_row is not None and attempt_row.has_machines:
            by_job[scale_set.job].add(scale_set.attempt)
    for job, attempts in by_job.items():
        if len(attempts) > 1:
            yield f"job {job} holds machines of {len(attempts)} attempts: {sorted(attempts)}"


def leaked(snapshot: Snapshot, processes: Iterable[str]) -> list[str]:
    """Return everything that still exists although all jobs are over."""
    return [
        *(f"scale set {s.name} ({s.state}) of job {s.job}" for s in snapshot.sets),
        *(f"machine {v.scale_set}/{v.instance_id} ({v.state})" for v in snapshot.vms),
        *(f"process {p}" for p in processes),
    ]


def mismatches(disturbed: JobOutcome, twin: JobOutcome) -> Iterator[str]:
    """Yield the differences between a killed job and its undisturbed twin."""
    if disturbed.parameters_sha256 != twin.parameters_sha256:
        yield (
            f"{disturbed.job}: parameters {disturbed.parameters_sha256 or 'none'}, "
            f"its twin's {twin.parameters_sha256}"
        )
    for step in sorted(disturbed.losses.keys() | twin.losses.keys()):
        loss, twin_loss = disturbed.losses.get(step), twin.losses.get(step)
        if loss != twin_loss:
            yield f"{disturbed.job}: loss of step {step} is {loss}, its twin's {twin_loss}"
            return  # all later losses differ too


def unfinished(outcomes: Sequence[JobOutcome]) -> list[str]:
    """Return the jobs that did not succeed."""
    return [f"{o.job}: {o.state} {o.error}" for o in outcomes if o.state != "succeeded"]
