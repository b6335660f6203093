"""How the number of machines is said: one in the singular, of an elastic job those it has."""

from dataclasses import replace

import pytest

from service.domain.reporting.status_message import AttemptFacts, JobFacts, status_message
from service.domain.states import Outcome
from tests.unit.jobs.story_facts import (
    ACTIVE,
    CANCELLED,
    GOING,
    NEXT,
    PENDING,
    QUEUED,
    RUNNING,
    STARTING,
    STOP,
    WHERE,
    attempt,
    job,
    over,
    trained,
)


def one(tried: AttemptFacts, **more: object) -> AttemptFacts:
    return replace(tried, instance_count=1, **more)  # type: ignore[arg-type]  # a table's rows


ONE_MACHINE: list[tuple[JobFacts, str]] = [
    (
        job(QUEUED, one(attempt(PENDING))),
        f"1 machine of {WHERE} is about to be asked for, to start.",
    ),
    (
        job(QUEUED, one(attempt(STARTING))),
        "Azure has given 1 machine in westus3; it has not joined yet.",
    ),
    (
        job(QUEUED, one(attempt(STARTING), joined=1)),
        "The machine has joined; it is about to start.",
    ),
    (
        job(QUEUED, one(attempt(STARTING), joined=1, generation=1)),
        f"1 machine of {WHERE} loads model and data.",
    ),
    (
        trained(RUNNING, one(attempt(ACTIVE, halt_kind=STOP, halt_reason="a member is gone"))),
        "A member is gone; training is being stopped, to go on from step 40.",
    ),
    (
        trained(RUNNING, one(over(Outcome.UNRESPONSIVE, reason="a node was silent"))),
        "A node was silent in westus3, so its machine is given up. "
        f"{NEXT} is asked for next, to go on from step 40.",
    ),
    (
        trained(RUNNING, one(attempt(ACTIVE, **GOING)), cancel_requested=True),
        "Cancel was asked for: its machine is stopped and deleted.",
    ),
    (
        trained(RUNNING, one(attempt(ACTIVE, **GOING)), pause_requested=True),
        "Pause was asked for: it saves a checkpoint and then lets its machine go.",
    ),
    (
        trained(CANCELLED, one(over(Outcome.CANCELLED))),
        "Cancelled by the user after step 50. Its machine is being deleted.",
    ),
]


@pytest.mark.parametrize(("facts", "message"), ONE_MACHINE, ids=lambda v: str(v)[:60])
def test_one_machine_is_told_of_in_the_singular(facts: JobFacts, message: str) -> None:
    assert status_message(facts).message == message


@pytest.mark.parametrize(
    ("members", "who"), [(0, "on 3 machines"), (2, "on 2 of 3 machines"), (3, "on 3 machines")]
)
def test_an_elastic_job_is_said_to_train_on_fewer_machines_only_while_it_does(
    members: int, who: str
) -> None:
    facts = trained(RUNNING, attempt(ACTIVE, instance_count=3, members=members, **GOING))

    assert f"{who} of {WHERE}" in status_message(facts).message
