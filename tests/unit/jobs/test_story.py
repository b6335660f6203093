"""What a user is told of a job: every state and sub-state, one sentence each."""

from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest

from service.domain.lifecycle.constraints import MOVES_TO_ON_DEMAND, RETURNS_TO_SPOT
from service.domain.reporting.status_message import (
    AttemptFacts,
    JobFacts,
    status_message,
    why_ended,
)
from service.domain.states import ATTEMPT_ENDING, JOB_TERMINAL, AttemptState, JobState, Outcome
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
)

TABLE: list[tuple[JobFacts, str, str, str]] = [
    (
        job(VALIDATING, reason="checking the rows: 3 of 40 are done"),
        "validating",
        "validating",
        "Checking the rows: 3 of 40 are done.",
    ),
    (job(QUEUED), "queued", "queued", f"Validated; {NEXT} is about to be asked for."),
    (
        job(QUEUED, attempt(PENDING)),
        "queued",
        "asking_for_machines",
        f"2 machines of {WHERE} are about to be asked for, to start.",
    ),
    (
        trained(RECOVERING, attempt(PENDING)),
        "recovering",
        "asking_for_machines",
        f"2 machines of {WHERE} are about to be asked for, to go on from step 40.",
    ),
    (
        job(QUEUED, attempt(PROVISIONING)),
        "provisioning",
        "provisioning",
        f"Azure was asked for 2 machines of {WHERE}, to start, at 12:00:00 UTC.",
    ),
    (
        trained(RECOVERING, attempt(PROVISIONING, refusals=2)),
        "provisioning",
        "provisioning",
        f"Azure was asked for 2 machines of {WHERE} (asked for the 3rd time), to go on from step "
        "40, at 12:00:00 UTC.",
    ),
    (
        job(QUEUED, attempt(STARTING, joined=1)),
        "booting",
        "booting",
        "Azure has given 2 machines in westus3; 1 of 2 have booted and joined.",
    ),
    (
        trained(RECOVERING, attempt(STARTING, joined=2)),
        "booting",
        "joined",
        "All 2 machines have joined; they are about to go on from step 40.",
    ),
    (
        job(QUEUED, attempt(STARTING, **GOING)),
        "loading",
        "loading",
        f"2 machines of {WHERE} load model and data.",
    ),
    (
        trained(RECOVERING, attempt(STARTING, from_step=40, **GOING)),
        "loading",
        "loading",
        f"2 machines of {WHERE} load model and data and the checkpoint of step 40.",
    ),
    (
        job(QUEUED, attempt(STARTING, opened_at=NOW, **GOING)),
        "loading",
        "loading",
        f"2 machines of {WHERE} load model and data, since 12:00:00 UTC.",
    ),
    (
        job(
            QUEUED, attempt(STARTING, opened_at=NOW, loaded_at=NOW + timedelta(minutes=1), **GOING)
        ),
        "loading",
        "first_step",
        f"2 machines of {WHERE} have loaded model and data; "
        "the first step is running, since 12:01:00 UTC.",
    ),
    (
        trained(RUNNING, attempt(ACTIVE, **GOING)),
        "training",
        "training",
        f"Training on 2 machines of {WHERE}.",
    ),
    (
        trained(RUNNING, attempt(ACTIVE, from_step=40, generation=2), step=40),
        "loading",
        "loading",
        f"2 machines of {WHERE} load model and data and the checkpoint of step 40.",
    ),
    (
        trained(RUNNING, attempt(ACTIVE, generation=2), step=0, checkpoint_step=0),
        "loading",
        "loading",
        f"2 machines of {WHERE} load model and data.",
    ),
    (
        trained(RUNNING, attempt(ACTIVE, from_step=120, generation=2), step=120),
        "saving",
        "saving_model",
        "All 120 steps are done; the final model is being saved.",
    ),
    (
        trained(RUNNING, attempt(ACTIVE, **GOING), step=120),
        "saving",
        "saving_model",
        "All 120 steps are done; the final model is being saved.",
    ),
    (
        trained(RUNNING, attempt(ACTIVE, halt_kind=SAVE, evicting=1, **GOING)),
        "saving",
        "eviction_notice",
        "Azure takes back 1 of 2 machines; training saves a checkpoint and stops.",
    ),
    (
        trained(
            RUNNING, attempt(ACTIVE, halt_kind=SAVE, halt_reason="a member has stopped", **GOING)
        ),
        "saving",
        "stopping",
        "A member has stopped; training saves a checkpoint and stops.",
    ),
    (
        trained(RUNNING, attempt(ACTIVE, halt_kind=STOP, halt_reason="a member is gone", **GOING)),
        "recovering",
        "stopping",
        "A member is gone; the others are being stopped, to go on from step 40.",
    ),
    (
        trained(RUNNING, over(Outcome.EVICTED, evicted_noticed=1)),
        "recovering",
        "spot_evicted",
        "1 of 2 machines was evicted in westus3 with notice; looking for machines to go on from "
        "step 40.",
    ),
    (
        trained(RUNNING, over(Outcome.EVICTED, evicted_unnoticed=2), checkpoint_step=0),
        "recovering",
        "spot_evicted",
        "2 of 2 machines were evicted in westus3 without notice; looking for machines to start "
        "over, as no checkpoint was committed yet.",
    ),
    (
        trained(RECOVERING, over(Outcome.EVICTED, evicted_noticed=1, evicted_unnoticed=1)),
        "recovering",
        "spot_evicted",
        "2 of 2 machines were evicted in westus3 (1 with notice, 1 without); looking for machines "
        "to go on from step 40.",
    ),
    (
        trained(RECOVERING, over(Outcome.EVICTED, reason="machines did not stop in time")),
        "recovering",
        "spot_evicted",
        "Machines did not stop in time. Looking for machines to go on from step 40.",
    ),
    (
        job(QUEUED, over(Outcome.NO_CAPACITY, refusals=1, reason="AllocationFailed: sold out")),
        "waiting_capacity",
        "no_capacity",
        f"Azure has no capacity for 2 machines of {WHERE} now (refused once; AllocationFailed: "
        f"sold out). {NEXT} is asked for next, to start.",
    ),
    (
        trained(RECOVERING, over(Outcome.NO_CAPACITY, refusals=7, reason="SkuNotAvailable")),
        "waiting_capacity",
        "no_capacity",
        f"Azure has no capacity for 2 machines of {WHERE} now (refused 7 times in a row; "
        f"SkuNotAvailable). {NEXT} is asked for next, to go on from step 40.",
    ),
    (
        trained(RUNNING, over(Outcome.UNRESPONSIVE, reason="a node was silent for 300 s")),
        "recovering",
        "unresponsive",
        "A node was silent for 300 s in westus3, so its machines are given up. "
        f"{NEXT} is asked for next, to go on from step 40.",
    ),
    (
        job(QUEUED, over(Outcome.UNRESPONSIVE, reason="starting for 30 min", duds=2)),
        "recovering",
        "unresponsive",
        "Starting for 30 min in westus3, so its machines are given up. "
        f"{NEXT} is asked for at 12:00:30 UTC, to start.",
    ),
    (
        trained(RUNNING, over(Outcome.SUCCEEDED)),
        "saving",
        "model_committed",
        "The final model is committed.",
    ),
    (
        trained(RUNNING, over(Outcome.TRAINER_ERROR, reason="3 trainer errors in a row")),
        "stopping",
        "trainer_error",
        "3 trainer errors in a row.",
    ),
    (
        trained(RECOVERING, over(Outcome.OVER_BUDGET, reason="the budget is exhausted")),
        "recovering",
        "resuming",
        "There is money again; machines to go on from step 40 are about to be asked for.",
    ),
    (
        trained(PAUSED, over(Outcome.OVER_BUDGET)),
        "recovering",
        "resuming",
        "There is money again; machines to go on from step 40 are about to be asked for.",
    ),
    (
        trained(RECOVERING, over(Outcome.PAUSED, reason=MOVES_TO_ON_DEMAND)),
        "migrating",
        "deadline_at_risk",
        f"{MOVES_TO_ON_DEMAND}; machines to go on from step 40 are about to be asked for.",
    ),
    (
        trained(RECOVERING, over(Outcome.PAUSED, reason=RETURNS_TO_SPOT)),
        "migrating",
        "back_to_spot",
        f"{RETURNS_TO_SPOT}; machines to go on from step 40 are about to be asked for.",
    ),
    (
        trained(RUNNING, over(Outcome.PAUSED)),
        "recovering",
        "resuming",
        "Resumed by the user; machines to go on from step 40 are about to be asked for.",
    ),
    (
        job(QUEUED, cancel_requested=True),
        "cancelling",
        "cancelling",
        "Cancel was asked for: nothing runs any more.",
    ),
    (
        trained(RUNNING, attempt(ACTIVE, **GOING), cancel_requested=True),
        "cancelling",
        "cancelling",
        "Cancel was asked for: its machines are stopped and deleted.",
    ),
    (
        trained(PAUSED, cancel_requested=True, pause_requested=True),
        "cancelling",
        "cancelling",
        "Cancel was asked for: nothing runs any more.",
    ),
    (
        trained(RUNNING, attempt(ACTIVE, **GOING), pause_requested=True),
        "pausing",
        "pausing",
        "Pause was asked for: it saves a checkpoint and then lets its machines go.",
    ),
    (
        job(QUEUED, attempt(PROVISIONING), pause_requested=True),
        "pausing",
        "pausing",
        "Pause was asked for: nothing is lost, as it does not train yet.",
    ),
    (
        trained(RECOVERING, attempt(PROVISIONING), pause_requested=True),
        "pausing",
        "pausing",
        "Pause was asked for: it does not train now; once resumed, it will go on from step 40.",
    ),
    (
        trained(RECOVERING, over(Outcome.EVICTED), pause_requested=True, checkpoint_step=0),
        "pausing",
        "pausing",
        "Pause was asked for: it does not train now; once resumed, it will start over, as no "
        "checkpoint was committed yet.",
    ),
    (
        trained(PAUSED, over(Outcome.PAUSED), pause_requested=True),
        "paused",
        "paused",
        "Paused by the user; once resumed, it will go on from step 40. Its machines are being "
        "deleted.",
    ),
    (
        job(PAUSED, pause_requested=True),
        "paused",
        "paused",
        "Paused by the user; once resumed, it will start.",
    ),
    (
        job(PAUSED),
        "queued",
        "resuming",
        "Resumed by the user; machines to start are about to be asked for.",
    ),
    (
        trained(SUCCEEDED, over(Outcome.SUCCEEDED, state=ENDED), step=120, evictions=2),
        "done",
        "succeeded",
        "All 120 steps are done and the model is ready, 2 evictions survived.",
    ),
    (
        trained(SUCCEEDED, over(Outcome.SUCCEEDED), step=120),
        "done",
        "succeeded",
        "All 120 steps are done and the model is ready. Its machines are being deleted.",
    ),
    (
        trained(FAILED, reason="3 trainer errors in a row\nTraceback"),
        "done",
        "failed",
        "3 trainer errors in a row.",
    ),
    (trained(CANCELLED), "done", "cancelled", "Cancelled by the user after step 50."),
    (job(CANCELLED), "done", "cancelled", "Cancelled by the user before training began."),
    (
        trained(CANCELLED, step=0, checkpoint_step=0),
        "done",
        "cancelled",
        "Cancelled by the user when it had to start over, as no checkpoint was committed.",
    ),
    (
        trained(RUNNING, attempt(ACTIVE, **GOING), help_wanted="Blob HEAD is gone: restore it."),
        "training",
        "needs_help",
        "Blob HEAD is gone: restore it.",
    ),
]


@pytest.mark.parametrize(("facts", "phase", "code", "message"), TABLE, ids=lambda v: str(v)[:60])
def test_a_job_is_told_in_one_sentence(
    facts: JobFacts, phase: str, code: str, message: str
) -> None:
    told = status_message(facts)

    assert (told.phase, told.code, told.message) == (phase, code, message)


def test_whatever_meets_is_told_in_whole_sentences() -> None:
    """Also what only a race can bring together: a look never finds a job without a story."""
    tried: list[AttemptFacts | None] = [None]
    for state, halted in product(AttemptState, (None, SAVE, STOP)):
        outcomes = tuple(Outcome) if state in ATTEMPT_ENDING else (None,)
        tried += [
            attempt(state, outcome=o, generation=g, halt_kind=halted)
            for o in outcomes
            for g in (0, 1)
        ]
    yes_or_no = (False, True)
    everything = product(JobState, tried, yes_or_no, yes_or_no, yes_or_no)

    for job_state, newest, cancel, pause, has_trained in everything:
        facts = job(job_state, newest, cancel_requested=cancel, pause_requested=pause)
        told = status_message(replace(facts, has_trained=has_trained))

        assert told.phase
        assert told.message.endswith(".")
        assert told.message[0] == told.message[0].upper()
        assert (told.phase == "done") == (job_state in JOB_TERMINAL)


def test_an_attempt_that_goes_on_has_no_reason_to_have_ended() -> None:
    assert why_ended(None, "") == ""


def test_a_refusal_is_told_with_azures_own_words() -> None:
    told = why_ended(Outcome.NO_CAPACITY, "AllocationFailed: no room")

    assert told == "Azure had no room: AllocationFailed: no room."
