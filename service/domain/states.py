"""Define the life cycle of a job and of an attempt, once.

Everything that needs to know which transitions exist (the guarded write, the CHECK constraints, the
diagram in docs/lifecycle.md) is derived from the tables here.
"""

from datetime import timedelta
from enum import StrEnum


class JobState(StrEnum):
    """The state of a job, as its user sees it."""

    VALIDATING = "validating"
    QUEUED = "queued"  # no training step of any attempt has run yet
    RUNNING = "running"
    RECOVERING = "recovering"  # between attempts
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class AttemptState(StrEnum):
    """The state of one hold on one scale set, which costs money."""

    PENDING = "pending"  # nothing exists in the cloud yet
    PROVISIONING = "provisioning"  # the scale set may exist
    STARTING = "starting"  # instances are up; nodes register, load, join
    RUNNING = "running"  # training steps are done
    TERMINATING = "terminating"  # outcome known, scale set must go
    ENDED = "ended"  # scale set seen to be gone


class Outcome(StrEnum):
    """Why an attempt ended."""

    SUCCEEDED = "succeeded"
    EVICTED = "evicted"
    NO_CAPACITY = "no_capacity"  # no room or no quota: the offering is left alone for a while
    MISCONFIGURED = "misconfigured"  # a person must act: a policy, an image, a subnet, a role
    PROVISIONING_FAILED = "provisioning_failed"  # Azure failed; worth another try anywhere
    UNRESPONSIVE = "unresponsive"
    TRAINER_ERROR = "trainer_error"
    CANCELLED = "cancelled"
    PAUSED = "paused"
    OVER_BUDGET = "over_budget"


class CapacityType(StrEnum):
    """How an offering is bought."""

    SPOT = "spot"
    ON_DEMAND = "on_demand"


_J, _A = JobState, AttemptState

_LIVE_EXITS = frozenset({_J.PAUSED, _J.SUCCEEDED, _J.FAILED, _J.CANCELLED})

JOB_MOVES: dict[JobState, frozenset[JobState]] = {
    _J.VALIDATING: frozenset({_J.QUEUED, _J.FAILED, _J.CANCELLED}),
    _J.QUEUED: frozenset({_J.RUNNING, *_LIVE_EXITS}),
    _J.RUNNING: frozenset({_J.RECOVERING, *_LIVE_EXITS}),
    _J.RECOVERING: frozenset({_J.RUNNING, *_LIVE_EXITS}),
    _J.PAUSED: frozenset({_J.QUEUED, _J.RECOVERING, _J.FAILED, _J.CANCELLED}),
    _J.SUCCEEDED: frozenset(),
    _J.FAILED: frozenset(),
    _J.CANCELLED: frozenset(),
}

ATTEMPT_MOVES: dict[AttemptState, frozenset[AttemptState]] = {
    _A.PENDING: frozenset({_A.PROVISIONING, _A.ENDED}),
    _A.PROVISIONING: frozenset({_A.STARTING, _A.TERMINATING}),
    _A.STARTING: frozenset({_A.RUNNING, _A.TERMINATING}),
    _A.RUNNING: frozenset({_A.TERMINATING}),
    _A.TERMINATING: frozenset({_A.ENDED}),
    _A.ENDED: frozenset(),
}

# How long an attempt may sit in a state before it is given up. TERMINATING has
# no limit on purpose: a scale set that still exists still costs money.
# PROVISIONING: the default of REKINDLE_PROVISIONING_SECONDS. Azure waits for a guest for 20 minutes
# (berops/claudie issue 386) to 40 (MicrosoftDocs/SupportArticles-docs pull request 1787) before
# it says OSProvisioningTimedOut; who gives up sooner throws away machines that come.
TIME_LIMITS: dict[AttemptState, tuple[timedelta, Outcome]] = {
    _A.PROVISIONING: (timedelta(minutes=40), Outcome.NO_CAPACITY),
    _A.STARTING: (timedelta(minutes=30), Outcome.UNRESPONSIVE),
}

# What the job does once an attempt has this outcome. None: the job looks for its
# next attempt and keeps its state until then (QUEUED stays QUEUED, RUNNING recovers).
JOB_AFTER: dict[Outcome, JobState | None] = {
    Outcome.SUCCEEDED: _J.SUCCEEDED,
    Outcome.EVICTED: None,
    Outcome.NO_CAPACITY: None,
    Outcome.MISCONFIGURED: _J.FAILED,  # a job that has trained is paused instead (lifecycle/job.py)
    Outcome.PROVISIONING_FAILED: None,
    Outcome.UNRESPONSIVE: None,
    Outcome.TRAINER_ERROR: _J.FAILED,
    Outcome.CANCELLED: _J.CANCELLED,
    Outcome.PAUSED: _J.PAUSED,
    Outcome.OVER_BUDGET: _J.PAUSED,  # or cancelled, where the user asked for that
}

# The status that OpenAI's clients know. Anything finer goes into phase and status_reason.
OPENAI_STATUS: dict[JobState, str] = {
    _J.VALIDATING: "validating_files",
    _J.QUEUED: "queued",
    _J.RUNNING: "running",
    _J.RECOVERING: "running",
    _J.PAUSED: "queued",  # OpenAI has no status for it, and strict clients take no other
    _J.SUCCEEDED: "succeeded",
    _J.FAILED: "failed",
    _J.CANCELLED: "cancelled",
}

# What a list of jobs can be filtered by, and a summary counts: a group holds several phases.
PHASE_GROUPS: dict[JobState, str] = {
    _J.VALIDATING: "waiting",
    _J.QUEUED: "waiting",  # in the queue, for machines, or for the first step on them
    _J.RUNNING: "training",
    _J.RECOVERING: "recovering",
    _J.PAUSED: "paused",
    _J.SUCCEEDED: "succeeded",
    _J.FAILED: "failed",
    _J.CANCELLED: "cancelled",
}

JOB_TERMINAL = frozenset(s for s, moves in JOB_MOVES.items() if not moves)
ATTEMPT_WITH_NODES = frozenset({_A.STARTING, _A.RUNNING})
ATTEMPT_WITH_OUTCOME = frozenset({_A.TERMINATING, _A.ENDED})  # the outcome is known
