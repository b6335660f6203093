"""What a user is told of when: since when a job waits for machines, and when it may ask again."""

from datetime import datetime, timedelta

import pytest

from service.domain.lifecycle.job import attempt_backoff
from service.domain.queue.admission import WaitReason
from service.domain.reporting.status_message import JobFacts, status_message
from service.domain.states import Outcome
from tests.unit.jobs.story_facts import (
    ACTIVE,
    GOING,
    NOW,
    PAUSED,
    QUEUED,
    RUNNING,
    attempt,
    job,
    over,
    trained,
    waits,
)

ASKED, LET_GO = NOW + timedelta(minutes=5), NOW + timedelta(minutes=3)
WAITS = [
    (job(QUEUED, queue=waits(2, WaitReason.JOBS)), NOW, None),
    (job(QUEUED, waits_for="Azure has no room.", asks_again_at=ASKED), NOW, ASKED),
    (job(QUEUED, waits_for="The price is above 2.00 dollars."), NOW, None),
    (job(QUEUED, over(Outcome.NO_CAPACITY, since=LET_GO)), NOW, LET_GO),
    (trained(RUNNING, over(Outcome.UNRESPONSIVE, since=LET_GO)), LET_GO, LET_GO),
    (
        job(QUEUED, over(Outcome.UNRESPONSIVE, since=LET_GO, duds=1)),
        NOW,
        LET_GO + attempt_backoff(0, 1),
    ),
    (job(QUEUED, asks_again_at=ASKED), None, None),
    (trained(RUNNING, attempt(ACTIVE, **GOING), asks_again_at=ASKED), None, None),
    (job(PAUSED, pause_requested=True, waits_for="a price", asks_again_at=ASKED), None, None),
]


@pytest.mark.parametrize(("facts", "since", "next_try_at"), WAITS, ids=lambda v: str(v)[:60])
def test_who_waits_for_machines_is_told_since_when_and_until_when(
    facts: JobFacts, since: datetime | None, next_try_at: datetime | None
) -> None:
    told = status_message(facts)

    assert (told.since, told.next_try_at) == (since, next_try_at)


def test_who_needs_help_waits_no_less() -> None:
    stuck = job(QUEUED, waits_for="Azure has no room.", asks_again_at=ASKED, help_wanted="Help.")

    told = status_message(stuck)

    assert (told.code, told.since, told.next_try_at) == ("needs_help", NOW, ASKED)
