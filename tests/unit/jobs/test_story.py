"""What a user is told of a job: every state and sub-state, one sentence each."""

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import product

import pytest

from service.domain.lifecycle.constraints import MOVES_TO_ON_DEMAND, RETURNS_TO_SPOT
from service.domain.lifecycle.job import attempt_backoff
from service.domain.queue.admission import WaitReason
from service.domain.reporting.status_message import (
    AttemptFacts,
    JobFacts,
    status_message,
    why_ended,
)
from service.domain.states import (
    ATTEMPT_WITH_OUTCOME,
    JOB_TERMINAL,
    AttemptState,
    JobState,
    Outcome,
)
from tests.unit.jobs.story_facts import (
    ACTIVE,
    CANCELLED,
    ENDED,
    FAILED,
    GOING,
    NEXT,
    NOW,
    PAUSED,
    PENDING,
    PROVISIONING,
    QUEUED,
    RECOVERING,
    RUNNING,
    SAVE,
    STARTING,
    STOP,
    SUCCEEDED,
    VALIDATING,
    WHERE,
    attempt,
    job,
    over,
    trained,
    waits,
)

TOLD: dict[str, JobFacts] = {  # what is told, with its phase and code: of what
    "validating/validating: Checking the rows: 3 of 40 are done.": job(
        VALIDATING, reason="checking the rows: 3 of 40 are done"
    ),
    f"queued/queued: Validated; {NEXT} is about to be asked for.": job(QUEUED),
    f"queued/asking_for_machines: 2 machines of {WHERE} are about to be asked for, to start.": job(
        QUEUED, attempt(PENDING)
    ),
    f"provisioning/provisioning: Azure was asked for 2 machines of {WHERE} (asked for the 3rd "
    "time), to go on from step 40, at 12:00:00 UTC.": trained(
        RECOVERING, attempt(PROVISIONING, refusals=2)
    ),
    "booting/booting: Azure has given 2 machines in westus3; 1 of 2 have booted and joined.": job(
        QUEUED, attempt(STARTING, joined=1)
    ),
    "booting/joined: All 2 machines have joined; they are about to go on from step 40.": trained(
        RECOVERING, attempt(STARTING, joined=2)
    ),
    f"loading/loading: 2 machines of {WHERE} load model and data and the checkpoint of step "
    "40.": trained(RECOVERING, attempt(STARTING, from_step=40, **GOING)),
    f"loading/loading: 2 machines of {WHERE} load model and data, since 12:00:00 UTC.": job(
        QUEUED, attempt(STARTING, opened_at=NOW, **GOING)
    ),
    f"loading/first_step: 2 machines of {WHERE} have loaded model and data; the first step is "
    "running, since 12:01:00 UTC.": job(
        QUEUED, attempt(STARTING, opened_at=NOW, loaded_at=NOW + timedelta(minutes=1), **GOING)
    ),
    f"training/training: Training on 2 machines of {WHERE}.": trained(
        RUNNING, attempt(ACTIVE, **GOING)
    ),
    f"loading/loading: 2 machines of {WHERE} load model and data.": trained(
        RUNNING, attempt(ACTIVE, generation=2), step=0, checkpoint_step=0
    ),
    "saving/saving_model: All 120 steps are done; the final model is being saved.": trained(
        RUNNING, attempt(ACTIVE, from_step=120, generation=2), step=120
    ),
    "saving/eviction_notice: Azure takes back 1 of 2 machines; training saves a checkpoint "
    "and stops.": trained(RUNNING, attempt(ACTIVE, halt_kind=SAVE, evicting=1, **GOING)),
    "saving/stopping: A member has stopped; training saves a checkpoint and stops.": trained(
        RUNNING, attempt(ACTIVE, halt_kind=SAVE, halt_reason="a member has stopped", **GOING)
    ),
    "recovering/stopping: A member is gone; the others are being stopped, to go on from step "
    "40.": trained(
        RUNNING, attempt(ACTIVE, halt_kind=STOP, halt_reason="a member is gone", **GOING)
    ),
    "recovering/spot_evicted: 1 of 2 machines was evicted in westus3 with notice; looking for"
    " machines to go on from step 40.": trained(RUNNING, over(Outcome.EVICTED, evicted_noticed=1)),
    "recovering/spot_evicted: 2 of 2 machines were evicted in westus3 without notice; looking"
    " for machines to start over, as no checkpoint was committed yet.": trained(
        RUNNING, over(Outcome.EVICTED, evicted_unnoticed=2), checkpoint_step=0
    ),
    "recovering/spot_evicted: 2 of 2 machines were evicted in westus3 (1 with notice, 1 "
    "without); looking for machines to go on from step 40.": trained(
        RECOVERING, over(Outcome.EVICTED, evicted_noticed=1, evicted_unnoticed=1)
    ),
    "recovering/spot_evicted: Machines did not stop in time. Looking for machines to go on "
    "from step 40.": trained(
        RECOVERING, over(Outcome.EVICTED, reason="machines did not stop in time")
    ),
    f"waiting_capacity/no_capacity: Azure has no capacity for 2 machines of {WHERE} now "
    f"(refused once; AllocationFailed: sold out). {NEXT} is asked for next, to start.": job(
        QUEUED, over(Outcome.NO_CAPACITY, refusals=1, reason="AllocationFailed: sold out")
    ),
    f"waiting_capacity/no_capacity: Azure has no capacity for 2 machines of {WHERE} now "
    f"(refused 7 times in a row; SkuNotAvailable). {NEXT} is asked for next, to go on from "
    "step 40.": trained(
        RECOVERING, over(Outcome.NO_CAPACITY, refusals=7, reason="SkuNotAvailable")
    ),
    "recovering/unresponsive: A node was silent for 300 s in westus3, so its machines are "
    f"given up. {NEXT} is asked for next, to go on from step 40.": trained(
        RUNNING, over(Outcome.UNRESPONSIVE, reason="a node was silent for 300 s")
    ),
    "recovering/unresponsive: Starting for 30 min in westus3, so its machines are given up. "
    f"{NEXT} is asked for at 12:00:30 UTC, to start.": job(
        QUEUED, over(Outcome.UNRESPONSIVE, reason="starting for 30 min", duds=2)
    ),
    "saving/model_committed: The final model is committed.": trained(
        RUNNING, over(Outcome.SUCCEEDED)
    ),
    "stopping/trainer_error: 3 trainer errors in a row.": trained(
        RUNNING, over(Outcome.TRAINER_ERROR, reason="3 trainer errors in a row")
    ),
    "recovering/resuming: There is money again; machines to go on from step 40 are about to "
    "be asked for.": trained(
        RECOVERING, over(Outcome.OVER_BUDGET, reason="the budget is exhausted")
    ),
    f"migrating/deadline_at_risk: {MOVES_TO_ON_DEMAND}; machines to go on from step 40 are "
    "about to be asked for.": trained(RECOVERING, over(Outcome.PAUSED, reason=MOVES_TO_ON_DEMAND)),
    f"migrating/back_to_spot: {RETURNS_TO_SPOT}; machines to go on from step 40 are about to "
    "be asked for.": trained(RECOVERING, over(Outcome.PAUSED, reason=RETURNS_TO_SPOT)),
    "recovering/resuming: Resumed by the user; machines to go on from step 40 are about to be"
    " asked for.": trained(RUNNING, over(Outcome.PAUSED)),
    "cancelling/cancelling: Cancel was asked for: nothing runs any more.": job(
        QUEUED, cancel_requested=True
    ),
    "cancelling/cancelling: Cancel was asked for: its machines are stopped and deleted.": trained(
        RUNNING, attempt(ACTIVE, **GOING), cancel_requested=True
    ),
    "pausing/pausing: Pause was asked for: it saves a checkpoint and then lets its machines "
    "go.": trained(RUNNING, attempt(ACTIVE, **GOING), pause_requested=True),
    "pausing/pausing: Pause was asked for: nothing is lost, as it does not train yet.": job(
        QUEUED, attempt(PROVISIONING), pause_requested=True
    ),
    "pausing/pausing: Pause was asked for: it does not train now; once resumed, it will go on"
    " from step 40.": trained(RECOVERING, attempt(PROVISIONING), pause_requested=True),
    "paused/paused: Paused by the user; once resumed, it will go on from step 40. Its "
    "machines are being deleted.": trained(PAUSED, over(Outcome.PAUSED), pause_requested=True),
    "paused/paused: Paused by the user; once resumed, it will start.": job(
        PAUSED, pause_requested=True
    ),
    "queued/resuming: Resumed by the user; machines to start are about to be asked for.": job(
        PAUSED
    ),
    "done/succeeded: All 120 steps are done and the model is ready, 2 evictions survived.": trained(
        SUCCEEDED, over(Outcome.SUCCEEDED, state=ENDED), step=120, evictions=2
    ),
    "done/succeeded: All 120 steps are done and the model is ready. Its machines are being "
    "deleted.": trained(SUCCEEDED, over(Outcome.SUCCEEDED), step=120),
    "done/failed: 3 trainer errors in a row.": trained(
        FAILED, reason="3 trainer errors in a row\nTraceback"
    ),
    "done/cancelled: Cancelled by the user after step 50.": trained(CANCELLED),
    "done/cancelled: Cancelled by the user before training began.": job(CANCELLED),
    "done/cancelled: Cancelled by the user when it had to start over, as no checkpoint was "
    "committed.": trained(CANCELLED, step=0, checkpoint_step=0),
    "training/needs_help: Blob HEAD is gone: restore it.": trained(
        RUNNING, attempt(ACTIVE, **GOING), help_wanted="Blob HEAD is gone: restore it."
    ),
    "paused/budget_exhausted: Budget exhausted: raise it. With more money, it will go on from"
    " step 40. Its machines are being deleted.": replace(
        trained(PAUSED, over(Outcome.OVER_BUDGET)), over_budget="budget exhausted: raise it"
    ),
    "done/budget_exhausted: Cancelled after step 50, as budget.on_exhausted is cancel. Budget"
    " exhausted: 40.00 of 40.00 USD are spent.": replace(
        trained(CANCELLED, None),
        over_budget="budget exhausted: 40.00 of 40.00 USD are spent; raise it",
    ),
    "waiting_capacity/no_capacity: Azure has no room until noon.": replace(
        job(QUEUED, over(Outcome.NO_CAPACITY)), waits_for="Azure has no room until noon."
    ),
    "queued/about_to_be_looked_at: In the queue; it is about to be looked at.": job(
        QUEUED, queue=waits(None, WaitReason.PENDING)
    ),
    "queued/project_jobs: 12th in the queue: it is full.": trained(
        RECOVERING, over(Outcome.PAUSED), queue=waits(12, WaitReason.JOBS)
    ),
    "waiting_capacity/region_cores: 1st in the queue: it is full.": job(
        QUEUED, queue=waits(1, WaitReason.CORES)
    ),
    f"waiting_capacity/provisioning_failed: Azure failed to make 2 machines of {WHERE} (2 "
    f"times in a row; InternalExecutionError). {NEXT} is asked for at 12:00:30 UTC, to start.": job(
        QUEUED, over(Outcome.PROVISIONING_FAILED, refusals=2, reason="InternalExecutionError")
    ),
    "stopping/misconfigured: No image.": trained(
        RECOVERING, over(Outcome.MISCONFIGURED, reason="no image")
    ),
    "paused/misconfigured: No image. Once resumed, it will go on from step 40. Its machines "
    "are being deleted.": trained(
        PAUSED, over(Outcome.MISCONFIGURED, reason="no image"), pause_requested=True
    ),
}


@pytest.mark.parametrize(("expected", "facts"), TOLD.items(), ids=lambda v: str(v)[:60])
def test_a_job_is_told_in_one_sentence(expected: str, facts: JobFacts) -> None:
    status = status_message(facts)

    assert f"{status.phase}/{status.code}: {status.message}" == expected


def test_whatever_meets_is_told_in_whole_sentences() -> None:
    """Also what only a race can bring together: a look never finds a job without a story."""
    attempts: list[AttemptFacts | None] = [None]
    for state, halted in product(AttemptState, (None, SAVE, STOP)):
        outcomes = tuple(Outcome) if state in ATTEMPT_WITH_OUTCOME else (None,)
        attempts += [
            attempt(state, outcome=o, generation=g, halt_kind=halted)
            for o in outcomes
            for g in (0, 1)
        ]
    yes_or_no = (False, True)
    everything = product(JobState, attempts, yes_or_no, yes_or_no, yes_or_no)

    for job_state, newest, cancel, pause, has_trained in everything:
        facts = job(job_state, newest, cancel_requested=cancel, pause_requested=pause)
        status = status_message(replace(facts, has_trained=has_trained))

        assert status.phase
        assert status.message.endswith(".")
        assert status.message[0] == status.message[0].upper()
        assert (status.phase == "done") == (job_state in JOB_TERMINAL)


def test_an_attempt_that_goes_on_has_no_reason_to_have_ended() -> None:
    assert why_ended(None, "") == ""


def test_a_refusal_is_told_with_azures_own_words() -> None:
    message = why_ended(Outcome.NO_CAPACITY, "AllocationFailed: no room")

    assert message == "Azure had no room: AllocationFailed: no room."


def one_machine(attempt_: AttemptFacts, **changes: object) -> AttemptFacts:
    return replace(attempt_, instance_count=1, **changes)  # type: ignore[arg-type]  # a table's rows


ONE_MACHINE: dict[str, JobFacts] = {
    f"1 machine of {WHERE} is about to be asked for, to start.": job(
        QUEUED, one_machine(attempt(PENDING))
    ),
    "Azure has given 1 machine in westus3; it has not joined yet.": job(
        QUEUED, one_machine(attempt(STARTING))
    ),
    "The machine has joined; it is about to start.": job(
        QUEUED, one_machine(attempt(STARTING), joined=1)
    ),
    f"1 machine of {WHERE} loads model and data.": job(
        QUEUED, one_machine(attempt(STARTING), joined=1, generation=1)
    ),
    "A member is gone; training is being stopped, to go on from step 40.": trained(
        RUNNING, one_machine(attempt(ACTIVE, halt_kind=STOP, halt_reason="a member is gone"))
    ),
    f"A node was silent in westus3, so its machine is given up. {NEXT} is asked for next, to "
    "go on from step 40.": trained(
        RUNNING, one_machine(over(Outcome.UNRESPONSIVE, reason="a node was silent"))
    ),
    "Cancel was asked for: its machine is stopped and deleted.": trained(
        RUNNING, one_machine(attempt(ACTIVE, **GOING)), cancel_requested=True
    ),
    "Pause was asked for: it saves a checkpoint and then lets its machine go.": trained(
        RUNNING, one_machine(attempt(ACTIVE, **GOING)), pause_requested=True
    ),
    "Cancelled by the user after step 50. Its machine is being deleted.": trained(
        CANCELLED, one_machine(over(Outcome.CANCELLED))
    ),
}


@pytest.mark.parametrize(("message", "facts"), ONE_MACHINE.items(), ids=lambda v: str(v)[:60])
def test_one_machine_is_told_of_in_the_singular(message: str, facts: JobFacts) -> None:
    assert status_message(facts).message == message


@pytest.mark.parametrize(
    ("members", "subject"), [(0, "on 3 machines"), (2, "on 2 of 3 machines"), (3, "on 3 machines")]
)
def test_an_elastic_job_is_said_to_train_on_fewer_machines_only_while_it_does(
    members: int, subject: str
) -> None:
    facts = trained(RUNNING, attempt(ACTIVE, instance_count=3, members=members, **GOING))

    assert f"{subject} of {WHERE}" in status_message(facts).message


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
    status = status_message(facts)

    assert (status.since, status.next_try_at) == (since, next_try_at)


def test_who_needs_help_waits_no_less() -> None:
    stuck = job(QUEUED, waits_for="Azure has no room.", asks_again_at=ASKED, help_wanted="Help.")

    status = status_message(stuck)

    assert (status.code, status.since, status.next_try_at) == ("needs_help", NOW, ASKED)
