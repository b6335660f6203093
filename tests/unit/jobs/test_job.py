"""What a job does next: one rule, one sentence."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from contract.choices import OnExhausted
from service.domain.lifecycle.attempt import CANNOT_BOOT
from service.domain.lifecycle.job import (
    MAX_UNTRAINED_ATTEMPTS,
    NEVER_TRAINED,
    Job,
    JobStep,
    LastAttempt,
    MoveJob,
    PauseJob,
    PrepareJob,
    RequeueJob,
    StartAttempt,
    attempt_backoff,
    next_step,
)
from service.domain.states import (
    ATTEMPT_WITH_OUTCOME,
    JOB_MOVES,
    JOB_TERMINAL,
    AttemptState,
    JobState,
    Outcome,
)

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
VALIDATING, QUEUED, RUNNING, RECOVERING, PAUSED, SUCCEEDED, FAILED, CANCELLED = JobState
LIVE = LastAttempt(
    id="att-3",
    number=3,
    state=AttemptState.STARTING,
    since=NOW,
    outcome=None,
    reason="",
    refusals=0,
)


def a_job(
    state: JobState,
    last: LastAttempt | None = None,
    **wishes: Any,  # noqa: ANN401
) -> Job:
    return Job(id="job", state=state, since=NOW, last_attempt=last, **wishes)


def over(outcome: Outcome, *, refusals: int = 0, ago: float = 0.0) -> LastAttempt:
    since = NOW - timedelta(seconds=ago)
    terminating = replace(LIVE, state=AttemptState.TERMINATING, since=since)
    return replace(terminating, outcome=outcome, reason="why", refusals=refusals)


EVICTED = over(Outcome.EVICTED)
UNBOOTED = replace(over(Outcome.UNRESPONSIVE), reason=f"{CANNOT_BOOT}: why")
row = pytest.param
RULES = {
    "a new job is prepared": row(a_job(VALIDATING), PrepareJob()),
    "a prepared job gets its first attempt": row(a_job(QUEUED), StartAttempt(number=1)),
    "a job waits while its attempt comes up": row(a_job(QUEUED, LIVE), RequeueJob()),
    "a job runs as soon as its attempt does": row(
        a_job(QUEUED, replace(LIVE, state=AttemptState.RUNNING)),
        MoveJob(to=RUNNING, reason="attempt 3 is training"),
    ),
    "a job has recovered as soon as the next attempt trains": row(
        a_job(RECOVERING, replace(LIVE, state=AttemptState.RUNNING)),
        MoveJob(to=RUNNING, reason="attempt 3 is training"),
    ),
    "an eviction makes a running job recover": row(
        a_job(RUNNING, EVICTED), MoveJob(to=RECOVERING, reason="why")
    ),
    "a job that recovers starts the next attempt, while the last is torn down": row(
        a_job(RECOVERING, EVICTED), StartAttempt(number=4)
    ),
    "so does one that has trained, whatever its reason begins with": row(
        a_job(RECOVERING, replace(EVICTED, reason="1 of 2 machines evicted"), has_trained=True),
        StartAttempt(number=4),
    ),
    "after a refusal a job looks elsewhere at once: where to, and when, all jobs know": row(
        a_job(QUEUED, over(Outcome.NO_CAPACITY, refusals=50, ago=0)), StartAttempt(number=4)
    ),
    "after Azure's own failure it waits by itself, as no other job does": row(
        a_job(QUEUED, over(Outcome.PROVISIONING_FAILED, refusals=3, ago=20)),
        RequeueJob(timedelta(seconds=40)),
    ),
    "then it asks again": row(
        a_job(QUEUED, over(Outcome.PROVISIONING_FAILED, refusals=3, ago=60)), StartAttempt(number=4)
    ),
    "a job that never trained fails for what a person must mend": row(
        a_job(QUEUED, over(Outcome.MISCONFIGURED)), MoveJob(to=FAILED, reason="why")
    ),
    "one that has trained is paused": row(
        a_job(RECOVERING, over(Outcome.MISCONFIGURED), has_trained=True), PauseJob("why")
    ),
    "and goes on once it is resumed": row(
        a_job(RECOVERING, replace(over(Outcome.MISCONFIGURED), resumed=True), has_trained=True),
        StartAttempt(number=4),
    ),
    "a job without money for machines pauses": row(
        a_job(RUNNING, over(Outcome.OVER_BUDGET), over_budget=OnExhausted.PAUSE, because="spent"),
        MoveJob(to=PAUSED, reason="spent"),
    ),
    "a job without money for machines is cancelled if that was asked for": row(
        a_job(RUNNING, over(Outcome.OVER_BUDGET), over_budget=OnExhausted.CANCEL, because="spent"),
        MoveJob(to=CANCELLED, reason="spent"),
    ),
    "a paused job with new money goes on": row(
        a_job(PAUSED, over(Outcome.OVER_BUDGET), has_trained=True),
        MoveJob(to=RECOVERING, reason="resumed by the user"),
    ),
    "a job whose attempt made way for on-demand machines starts the next one": row(
        a_job(RECOVERING, over(Outcome.PAUSED)), StartAttempt(number=4)
    ),
    "a committed model is the job's success": row(
        a_job(RUNNING, over(Outcome.SUCCEEDED)), MoveJob(to=SUCCEEDED, reason="why")
    ),
    "a success counts even if the user has asked for a cancel": row(
        a_job(RUNNING, over(Outcome.SUCCEEDED), cancel_requested=True),
        MoveJob(to=SUCCEEDED, reason="why"),
    ),
    "a poison job fails": row(
        a_job(RUNNING, over(Outcome.TRAINER_ERROR)), MoveJob(to=FAILED, reason="why")
    ),
    "a job whose machines cannot boot fails after one attempt": row(
        a_job(QUEUED, UNBOOTED), MoveJob(to=FAILED, reason=UNBOOTED.reason)
    ),
    "a job that has trained is paused when its machines cannot boot": row(
        a_job(RECOVERING, UNBOOTED, has_trained=True), PauseJob(UNBOOTED.reason)
    ),
    "a job that is resumed after its machines could not boot starts the next attempt": row(
        a_job(RECOVERING, replace(UNBOOTED, resumed=True), has_trained=True), StartAttempt(number=4)
    ),
    "a cancel counts even if the machines cannot boot": row(
        a_job(QUEUED, UNBOOTED, cancel_requested=True),
        MoveJob(to=CANCELLED, reason="cancelled by the user"),
    ),
    "an attempt that was cancelled cancels its job": row(
        a_job(RUNNING, over(Outcome.CANCELLED), cancel_requested=True),
        MoveJob(to=CANCELLED, reason="why"),
    ),
    "a cancel waits for the live attempt to stop": row(
        a_job(RUNNING, LIVE, cancel_requested=True), RequeueJob()
    ),
    "a cancel between attempts is granted at once": row(
        a_job(RECOVERING, EVICTED, cancel_requested=True),
        MoveJob(to=CANCELLED, reason="cancelled by the user"),
    ),
    "a cancel before validation is granted at once": row(
        a_job(VALIDATING, cancel_requested=True),
        MoveJob(to=CANCELLED, reason="cancelled by the user"),
    ),
    "a paused job can be cancelled": row(
        a_job(PAUSED, over(Outcome.PAUSED), pause_requested=True, cancel_requested=True),
        MoveJob(to=CANCELLED, reason="cancelled by the user"),
    ),
    "an attempt that was paused pauses its job": row(
        a_job(RUNNING, over(Outcome.PAUSED), pause_requested=True),
        MoveJob(to=PAUSED, reason="paused by the user"),
    ),
    "a pause between attempts starts no other one": row(
        a_job(RECOVERING, EVICTED, pause_requested=True),
        MoveJob(to=PAUSED, reason="paused by the user"),
    ),
    "a pause does not stop validation": row(a_job(VALIDATING, pause_requested=True), PrepareJob()),
    "a paused job waits": row(
        a_job(PAUSED, over(Outcome.PAUSED), pause_requested=True), RequeueJob()
    ),
    "a resumed job recovers": row(
        a_job(PAUSED, over(Outcome.PAUSED), has_trained=True),
        MoveJob(to=RECOVERING, reason="resumed by the user"),
    ),
    "a job that was paused before its first training step is queued again": row(
        a_job(PAUSED, over(Outcome.PAUSED)), MoveJob(to=QUEUED, reason="resumed by the user")
    ),
    "a job that was paused before its first attempt is queued again": row(
        a_job(PAUSED), MoveJob(to=QUEUED, reason="resumed by the user")
    ),
    "a new job whose machines never train fails": row(
        a_job(QUEUED, replace(EVICTED, duds=MAX_UNTRAINED_ATTEMPTS)),
        MoveJob(to=FAILED, reason=NEVER_TRAINED),
    ),
    "a job that has trained is not lost for machines that never train": row(
        a_job(RECOVERING, replace(EVICTED, duds=MAX_UNTRAINED_ATTEMPTS), has_trained=True),
        PauseJob(NEVER_TRAINED),
    ),
    "a pause that is taken back while the attempt winds down just recovers": row(
        a_job(RUNNING, over(Outcome.PAUSED)), MoveJob(to=RECOVERING, reason="why")
    ),
}


@pytest.mark.parametrize(("job", "step"), RULES.values(), ids=RULES)
def test_rule(job: Job, step: JobStep) -> None:
    assert next_step(job, NOW) == step


@pytest.mark.parametrize("state", sorted(JOB_TERMINAL))
@pytest.mark.parametrize("last", [None, EVICTED, LIVE])
def test_a_job_that_is_over_does_nothing_more(state: JobState, last: LastAttempt | None) -> None:
    assert next_step(a_job(state, last, cancel_requested=True), NOW) == RequeueJob()


@pytest.mark.parametrize("state", sorted(set(AttemptState) - ATTEMPT_WITH_OUTCOME))
@pytest.mark.parametrize("job_state", sorted(set(JobState) - JOB_TERMINAL))
@pytest.mark.parametrize("cancel", [False, True])
@pytest.mark.parametrize("pause", [False, True])
def test_no_attempt_is_started_beside_a_live_one(
    state: AttemptState, job_state: JobState, cancel: bool, pause: bool
) -> None:
    last = replace(LIVE, state=state)
    step = next_step(a_job(job_state, last, cancel_requested=cancel, pause_requested=pause), NOW)

    assert not isinstance(step, StartAttempt)


@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize("state", [QUEUED, RUNNING, RECOVERING])
@pytest.mark.parametrize("cancel", [False, True])
@pytest.mark.parametrize("pause", [False, True])
def test_whatever_became_of_the_attempt_the_jobs_move_exists(
    outcome: Outcome, state: JobState, cancel: bool, pause: bool
) -> None:
    job = a_job(state, over(outcome), cancel_requested=cancel, pause_requested=pause)
    step = next_step(job, NOW)

    assert not isinstance(step, MoveJob) or step.to in JOB_MOVES[state]


def test_the_pauses_between_failures_grow_to_five_minutes() -> None:
    pauses = [attempt_backoff(refusals, 0).total_seconds() for refusals in range(8)]

    assert pauses == [0, 15, 30, 60, 120, 300, 300, 300]
    assert [attempt_backoff(2, duds).total_seconds() for duds in (1, 3)] == [30, 60]
