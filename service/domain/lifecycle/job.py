"""A user's fine-tune request, and what to do about it next. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from contract.choices import OnExhausted
from service.domain.lifecycle.attempt import CANNOT_BOOT, FRUITLESS, HEAD_UNREADABLE
from service.domain.states import (
    ATTEMPT_OVER,
    JOB_AFTER,
    JOB_TERMINAL,
    AttemptState,
    JobState,
    Outcome,
)

# After refusals in a row the next try waits longer, so that a sold-out region is not hammered.
MAX_DUDS = 3  # then it is no accident: image, network or settings are wrong
_BACK_OFF = tuple(timedelta(seconds=s) for s in (0, 15, 30, 60, 120, 300))
_DUD = (
    "No training step within the time for starting. Check that the nodes can pull the trainer "
    "image and reach this service (REKINDLE_TRAINER_IMAGE, REKINDLE_PUBLIC_URL), and their logs."
)
NEVER_TRAINED = f"{MAX_DUDS} attempts never trained. {_DUD}"


@dataclass(frozen=True, kw_only=True)
class LastAttempt:
    """What the job must know of its newest attempt."""

    id: str
    number: int
    state: AttemptState
    since: datetime
    outcome: Outcome | None
    reason: str
    refusals: int  # attempts in a row, this one included, that Azure gave no machines
    # Attempts in a row, this one included, whose nodes never trained; none of before the job was
    # resumed: somebody has mended it, or believes so.
    duds: int = 0
    resumed: bool = False  # the job was, since this attempt was over


@dataclass(frozen=True, kw_only=True)
class Job:
    """The row as the decision sees it."""

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
class Wait:
    """Look again after ``delay`` (None: nothing to do until somebody hints)."""

    delay: timedelta | None = None


@dataclass(frozen=True)
class Prepare:
    """VALIDATING: pin everything and write the run spec, then QUEUED or FAILED."""


@dataclass(frozen=True)
class Pause:
    """Ask for no more machines until the user resumes the job, who has not paused it."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class StartAttempt:
    """Write the next attempt's row."""

    number: int


@dataclass(frozen=True, kw_only=True)
class Move:
    """Write one move."""

    to: JobState
    reason: str = ""


Step = Wait | Prepare | Pause | StartAttempt | Move


def next_step(job: Job, now: datetime) -> Step:
    """Decide one step; the same arguments always give the same step."""
    if job.state in JOB_TERMINAL:
        return Wait()
    last = job.last_attempt
    if last is not None and last.state not in ATTEMPT_OVER:
        return _follow(job, last)
    if last is not None and _is_ours_to_mend(job, last):
        return _after_nothing(job, last, now)
    if last is not None and last.outcome is not None:
        decided = JOB_AFTER[last.outcome]
        if decided not in (None, JobState.PAUSED, job.state):
            assert decided is not None
            return Move(to=decided, reason=last.reason)
    return _between_attempts(job, last, now)


def pause_after(refusals: int, duds: int) -> timedelta:
    """How long to wait before the next attempt, after so many in a row that came to nothing."""
    return _BACK_OFF[min(max(refusals, duds), len(_BACK_OFF) - 1)]


def pause_before_next(outcome: Outcome | None, refusals: int, duds: int) -> timedelta:
    """Return the backoff of a job after an attempt of this outcome.

    The offering that refused has a backoff of its own: `spot/capacity_backoff.py`.
    """
    failed = outcome is Outcome.PROVISIONING_FAILED
    return pause_after(refusals if failed else 0, duds)


def _follow(job: Job, last: LastAttempt) -> Step:
    """A live attempt: the job runs as soon as the attempt does."""
    if last.state is AttemptState.RUNNING and job.state is not JobState.RUNNING:
        return Move(to=JobState.RUNNING, reason=f"attempt {last.number} is training")
    return Wait()


def _between_attempts(job: Job, last: LastAttempt | None, now: datetime) -> Step:
    if job.cancel_requested:
        return Move(to=JobState.CANCELLED, reason="cancelled by the user")
    if job.state is JobState.VALIDATING:
        return Prepare()
    if job.over_budget is OnExhausted.CANCEL:
        return Move(to=JobState.CANCELLED, reason=job.because)
    if job.pause_requested or job.over_budget:
        why = "paused by the user" if job.pause_requested else job.because
        return Wait() if job.state is JobState.PAUSED else Move(to=JobState.PAUSED, reason=why)
    if job.state is JobState.PAUSED:
        back = JobState.RECOVERING if job.has_trained else JobState.QUEUED
        return Move(to=back, reason="resumed by the user")
    if job.state is JobState.RUNNING:
        return Move(to=JobState.RECOVERING, reason=last.reason if last else "")
    return _next_attempt(job, last, now)


def _is_ours_to_mend(job: Job, last: LastAttempt) -> bool:
    if last.reason.startswith(CANNOT_BOOT):
        return True
    mend = last.reason == FRUITLESS or last.outcome is Outcome.MISCONFIGURED
    return last.reason == HEAD_UNREADABLE or (mend and job.has_trained)


def _after_nothing(job: Job, last: LastAttempt, now: datetime) -> Step:
    """No trainer erred, so it is the service's to mend: a job that has trained is not lost for it.

    One whose machines cannot boot at all fails at once, if it has never trained. That the job has
    moved since says that it was resumed, and goes on.
    """
    if last.resumed or job.cancel_requested or job.state is JobState.PAUSED:
        return _between_attempts(job, last, now)
    if last.reason.startswith(CANNOT_BOOT) and not job.has_trained:
        return Move(to=JobState.FAILED, reason=last.reason)
    return Pause(last.reason)


def _next_attempt(job: Job, last: LastAttempt | None, now: datetime) -> Step:
    """A job that has trained is not lost for what may be wrong with the service's own set-up."""
    if last is None:
        return StartAttempt(number=1)
    if last.duds >= MAX_DUDS:
        fails = Move(to=JobState.FAILED, reason=NEVER_TRAINED)
        return Pause(NEVER_TRAINED) if job.has_trained else fails
    left = pause_before_next(last.outcome, last.refusals, last.duds) - (now - last.since)
    return Wait(left) if left > timedelta(0) else StartAttempt(number=last.number + 1)
