"""What a user is told of a job whose machines Azure failed to make, or refuses for a reason."""

import pytest

from service.domain.reporting.status_message import JobFacts, status_message
from service.domain.states import Outcome
from tests.unit.jobs.story_facts import NEXT, PAUSED, QUEUED, RECOVERING, WHERE, job, over, trained

NO_IMAGE = over(Outcome.MISCONFIGURED, reason="no image")
FAILED = over(Outcome.PROVISIONING_FAILED, refusals=2, reason="InternalExecutionError")


@pytest.mark.parametrize(
    ("facts", "phase", "code", "message"),
    [
        (
            job(QUEUED, FAILED),
            "waiting_capacity",
            "provisioning_failed",
            f"Azure failed to make 2 machines of {WHERE} (2 times in a row;"
            f" InternalExecutionError). {NEXT} is asked for at 12:00:30 UTC, to start.",
        ),
        (trained(RECOVERING, NO_IMAGE), "stopping", "misconfigured", "No image."),
        (
            trained(PAUSED, NO_IMAGE, pause_requested=True),
            "paused",
            "misconfigured",
            "No image. Once resumed, it will go on from step 40. Its machines are being deleted.",
        ),
    ],
)
def test_it_says_whether_a_person_must_act(
    facts: JobFacts, phase: str, code: str, message: str
) -> None:
    told = status_message(facts)

    assert (told.phase, told.code, told.message) == (phase, code, message)
