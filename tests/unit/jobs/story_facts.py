"""A job and its newest attempt as a story needs them, for tests of what is told."""

from dataclasses import replace
from datetime import UTC, datetime

from service.domain.queue.admission import QueueStanding, WaitReason
from service.domain.reporting.status_message import AttemptFacts, JobFacts
from service.domain.states import AttemptState, JobState, Outcome
from trainer.contract import DirectiveKind

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
WHERE = "Standard_ND96amsr_A100_v4 in westus3 (spot)"
NEXT = "Standard_ND96amsr_A100_v4 in eastus (spot)"
VALIDATING, QUEUED, RUNNING, RECOVERING, PAUSED, SUCCEEDED, FAILED, CANCELLED = JobState
PENDING, PROVISIONING, STARTING, ACTIVE, TERMINATING, ENDED = AttemptState
SAVE, STOP = DirectiveKind.CHECKPOINT_AND_STOP, DirectiveKind.STOP
GOING = {"joined": 2, "generation": 1}


def attempt(state: AttemptState, **changes: object) -> AttemptFacts:
    """Return the facts of a job's second attempt, on two machines."""
    facts = AttemptFacts(
        state=state,
        since=NOW,
        outcome=None,
        reason="",
        offering=WHERE,
        region="westus3",
        instance_count=2,
    )
    return replace(facts, **changes)  # type: ignore[arg-type]  # a table's rows


def waits(position: int | None, code: WaitReason) -> QueueStanding:
    return QueueStanding(since=NOW, position=position, code=code, why="it is full")


def over(outcome: Outcome, **changes: object) -> AttemptFacts:
    return replace(attempt(TERMINATING), outcome=outcome, **changes)  # type: ignore[arg-type]  # a row


def job(state: JobState, attempt_: AttemptFacts | None = None, **changes: object) -> JobFacts:
    facts = JobFacts(state=state, since=NOW, total_steps=120, next_offering=NEXT, attempt=attempt_)
    return replace(facts, **changes)  # type: ignore[arg-type]  # a table's rows


def trained(state: JobState, attempt_: AttemptFacts | None = None, **changes: object) -> JobFacts:
    """Such a job that has done 50 steps and committed 40 of them."""
    return job(state, attempt_, has_trained=True, **{"step": 50, "checkpoint_step": 40} | changes)
