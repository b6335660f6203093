"""Describe a fine-tuning job and decide its next step. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from contract.choices import OnExhausted
from service.domain.lifecycle.attempt import CANNOT_BOOT, FRUITLESS, HEAD_UNREADABLE
from service.domain.states import (
    ATTEMPT_WITH_OUTCOME,
    JOB_AFTER,
    JOB_TERMINAL,
    AttemptState,
    JobState,
    Outcome,
)

# After refusals in a row the next try waits longer, so that a sold-out region is not hammered.
MAX_UNTRAINED_ATTEMPTS = 3  # then it is no accident: image, network or settings are wrong
_BACKOFF = tuple(timedelta(seconds=s) for s in (0, 15, 30, 60, 120, 300))
_UNTRAINED = (
    "No training step within the time for starting. Check that the nodes can pull the trainer "
    "image and reach this service (REKINDLE_TRAINER_IMAGE, REKINDLE_PUBLIC_URL), and their logs."
)
NEVER_TRAINED = f"{MAX_UNTRAINED_ATTEMPTS} attempts never trained. {_UNTRAINED}"


@dataclass(frozen=True, kw_only=True)
class LastAttempt:
    """What the job needs to know of its newest attempt."""

    id: str
    number: int
    state: AttemptState
    since: datetime
    outcome: Outcome | None
    reason: str
    refusals: int  # attempts in a row, this one included, that Azure gave no machines
    # Attempts in a row, this one included, whose nodes never trained; none of before the job was
    # resumed: then its cause counts as repaired.
    duds: int = 0
    resumed: bool = False  # the job was, since this attempt was over


@dataclass(frozen=True, kw_only=True)
class Job:
    """The job's row as the decision sees it."""

    id: str
    state: JobState
    since: datetime
    cancel_requested: bool = False
    pause_requested: bool = False
    over_budget: OnExhausted | None = None  # since money ran out: what is to become of it ...
    because: str = ""  # ... and why, in a sentence
    deadline: datetime | None = None
    has_trained: bool = False  # a training step of some attempt has run
    last_attempt: LastAttempt | None = None


@dataclass(frozen=True)
class RequeueJob:
    """Process the job again after ``delay`` (None: when it is enqueued)."""

    delay: timedelta | None = None


@dataclass(frozen=True)
class PrepareJob:
    """Pin all inputs and write the run spec in VALIDATING; then QUEUED or FAILED."""


@dataclass(frozen=True)
class PauseJob:
    """Request no more machines until the user resumes the job."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class StartAttempt:
    """Write the next attempt's row."""

    number: int


@dataclass(frozen=True, kw_only=True)
class MoveJob:
    """Write one state transition."""

    to: JobState
    reason: str = ""


JobStep = RequeueJob | PrepareJob | PauseJob | StartAttempt | MoveJob


def next_step(job: Job, now: datetime) -> JobStep:
    """Decide one step; the same arguments always give the same step."""
    if job.state in JOB_TERMINAL:
        return RequeueJob()
    last = job.last_attempt
    if last is not None and last.state not in ATTEMPT_WITH_OUTCOME:
        return _follow_attempt(job, last)
    if last is not None and _is_service_fault(job, last):
        return _pause_or_fail(job, last, now)
    if last is not None and last.outcome is not None:
        decided = JOB_AFTER[last.outcome]
        if decided not in (None, JobState.PAUSED, job.state):
            assert decided is not None
            return MoveJob(to=decided, reason=last.reason)
    return _decide_between_attempts(job, last, now)


def attempt_backoff(refusals: int, duds: int) -> timedelta:
    """Return the backoff after this many refused or untrained attempts in a row."""
    return _BACKOFF[min(max(refusals, duds), len(_BACKOFF) - 1)]


def backoff_before_next(outcome: Outcome | None, refusals: int, duds: int) -> timedelta:
    """Return the backoff of a job after an attempt of this outcome: at most 5 minutes.

    The offering that refused has a backoff of its own: `spot/capacity_backoff.py`.
    """
    failed = outcome is Outcome.PROVISIONING_FAILED
    return attempt_backoff(refusals if failed else 0, duds)


def _follow_attempt(job: Job, last: LastAttempt) -> JobStep:
    """Move the job to RUNNING as soon as its attempt runs."""
    if last.state is AttemptState.RUNNING and job.state is not JobState.RUNNING:
        return MoveJob(to=JobState.RUNNING, reason=f"attempt {last.number} is training")
    return RequeueJob()


def _decide_between_attempts(job: Job, last: LastAttempt | None, now: datetime) -> JobStep:
    if job.cancel_requested:
        return MoveJob(to=JobState.CANCELLED, reason="cancelled by the user")
    if job.state is JobState.VALIDATING:
        return PrepareJob()
    if job.over_budget is OnExhausted.CANCEL:
        return MoveJob(to=JobState.CANCELLED, reason=job.because)
    if job.pause_requested or job.over_budget:
        why = "paused by the user" if job.pause_requested else job.because
        return (
            RequeueJob()
            if job.state is JobState.PAUSED
            else MoveJob(to=JobState.PAUSED, reason=why)
        )
    if job.state is JobState.PAUSED:
        next_state = JobState.RECOVERING if job.has_trained else JobState.QUEUED
        return MoveJob(to=next_state, reason="resumed by the user")
    if job.state is JobState.RUNNING:
        return MoveJob(to=JobState.RECOVERING, reason=last.reason if last else "")
    return _next_attempt(job, last, now)


def _is_service_fault(job: Job, last: LastAttempt) -> bool:
    if last.reason.startswith(CANNOT_BOOT):
        return True
    mend = last.reason == FRUITLESS or last.outcome is Outcome.MISCONFIGURED
    return last.reason == HEAD_UNREADABLE or (mend and job.has_trained)


def _pause_or_fail(job: Job, last: LastAttempt, now: datetime) -> JobStep:
    """Pause a job whose attempt failed by the service's own set-up, or fail it.

    A job that has trained is paused and not lost. One whose machines cannot boot at all fails at
    once if it has never trained. A job that has moved since was resumed, and goes on.
    """
    if last.resumed or job.cancel_requested or job.state is JobState.PAUSED:
        return _decide_between_attempts(job, last, now)
    if last.reason.startswith(CANNOT_BOOT) and not job.has_trained:
        return MoveJob(to=JobState.FAILED, reason=last.reason)
    return PauseJob(last.reason)


def _next_attempt(job: Job, last: LastAttempt | None, now: datetime) -> JobStep:
    """Start the next attempt after its backoff; pause a trained job after too many."""
    if last is None:
        return StartAttempt(number=1)
    if last.duds >= MAX_UNTRAINED_ATTEMPTS:
        fails = MoveJob(to=JobState.FAILED, reason=NEVER_TRAINED)
        return PauseJob(NEVER_TRAINED) if job.has_trained else fails
    delay = backoff_before_next(last.outcome, last.refusals, last.duds) - (now - last.since)
    return RequeueJob(delay) if delay > timedelta(0) else StartAttempt(number=last.number + 1)
