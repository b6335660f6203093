"""What a user is told when money, capacity or time runs short: one sentence each."""

from dataclasses import replace

import pytest

from service.domain.lifecycle.constraints import MOVES_TO_ON_DEMAND
from service.domain.queue.admission import WaitReason
from service.domain.reporting.status_message import JobFacts, status_message
from service.domain.states import Outcome
from tests.unit.jobs.story_facts import (
    CANCELLED,
    PAUSED,
    QUEUED,
    RECOVERING,
    job,
    over,
    trained,
    waits,
)

TABLE: list[tuple[JobFacts, str, str, str]] = [
    (
        replace(
            trained(PAUSED, over(Outcome.OVER_BUDGET)), over_budget="budget exhausted: raise it"
        ),
        "paused",
        "budget_exhausted",
        "Budget exhausted: raise it. With more money, it will go on from step 40. "
        "Its machines are being deleted.",
    ),
    (
        replace(
            trained(CANCELLED, None),
            over_budget="budget exhausted: 40.00 of 40.00 USD are spent; raise it",
        ),
        "done",
        "budget_exhausted",
        "Cancelled after step 50, as budget.on_exhausted is cancel. Budget exhausted: 40.00 of "
        "40.00 USD are spent.",
    ),
    (
        replace(job(QUEUED, over(Outcome.NO_CAPACITY)), waits_for="Azure has no room until noon."),
        "waiting_capacity",
        "no_capacity",
        "Azure has no room until noon.",
    ),
    (
        job(QUEUED, queue=waits(None, WaitReason.PENDING)),
        "queued",
        "about_to_be_looked_at",
        "In the queue; it is about to be looked at.",
    ),
    (
        trained(RECOVERING, over(Outcome.PAUSED), queue=waits(12, WaitReason.JOBS)),
        "queued",
        "project_jobs",
        "12th in the queue: it is full.",
    ),
    (
        job(QUEUED, queue=waits(1, WaitReason.CORES)),
        "waiting_capacity",
        "region_cores",
        "1st in the queue: it is full.",
    ),
    (
        trained(RECOVERING, over(Outcome.PAUSED, reason=MOVES_TO_ON_DEMAND)),
        "migrating",
        "deadline_at_risk",
        f"{MOVES_TO_ON_DEMAND}; machines to go on from step 40 are about to be asked for.",
    ),
]


@pytest.mark.parametrize(("facts", "phase", "code", "message"), TABLE)
def test_a_job_that_lacks_something_is_told_in_one_sentence(
    facts: JobFacts, phase: str, code: str, message: str
) -> None:
    told = status_message(facts)

    assert (told.phase, told.code, told.message) == (phase, code, message)
