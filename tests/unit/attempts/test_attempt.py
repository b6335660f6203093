"""What an attempt does next: one rule, one sentence."""

from dataclasses import replace
from datetime import timedelta

import pytest

from service.domain.cloud.fleet import ScaleSetFailure
from service.domain.lifecycle.attempt import (
    Attempt,
    AttemptStep,
    AttemptView,
    CreateScaleSet,
    DeleteScaleSet,
    MoveAttempt,
    RequeueAttempt,
)
from service.domain.lifecycle.attempt_steps import next_step
from service.domain.lifecycle.constraints import MOVES_TO_ON_DEMAND
from service.domain.lifecycle.generation import HaltGeneration
from service.domain.states import ATTEMPT_MOVES, AttemptState, Outcome
from tests.unit.attempts.attempt_facts import (
    ALL_FAILED,
    ALL_STOPPED,
    BOOTED,
    BROKEN,
    CRASHED,
    CREATING,
    DELETING,
    ENDED,
    GONE,
    MINUTE,
    NONE,
    NOTICED_AND_STOPPED,
    NOW,
    ONE_GONE,
    PACE,
    PENDING,
    PROVISIONING,
    RANK_0_FINISHED,
    READY,
    REGISTERED,
    RUNNING,
    SAVE_AND_STOP,
    SECOND,
    STARTING,
    STOP,
    STOPPED,
    TERMINATING,
    TRAINING,
    UNDER_NOTICE,
    attempt,
    halted,
    machines,
    node,
    reopened,
)

NO_ROOM = ScaleSetFailure.NO_CAPACITY
PEER_RESTARTED = replace(
    TRAINING, nodes=[node(0, CRASHED), replace(node(1, STOPPED), restarted_in=1)]
)
WITH_MODEL = replace(TRAINING, model_committed=True)
row = pytest.param
RULES = {
    "the intent is written before the cloud is asked": row(
        attempt(PENDING), NONE, MoveAttempt(to=PROVISIONING)
    ),
    "a request before launch costs nothing": row(
        attempt(PENDING, stop_as=Outcome.CANCELLED),
        NONE,
        MoveAttempt(to=ENDED, outcome=Outcome.CANCELLED, reason="before launch"),
    ),
    "a move before launch says why": row(
        replace(attempt(PENDING, stop_as=Outcome.PAUSED), because=MOVES_TO_ON_DEMAND),
        NONE,
        MoveAttempt(to=ENDED, outcome=Outcome.PAUSED, reason=MOVES_TO_ON_DEMAND),
    ),
    "a scale set that is not there is asked for": row(
        attempt(PROVISIONING), NONE, CreateScaleSet()
    ),
    "a scale set in the making is waited for": row(
        attempt(PROVISIONING), AttemptView(scale_set=machines(CREATING, 0)), RequeueAttempt()
    ),
    "a scale set that is there is started": row(
        attempt(PROVISIONING), BOOTED, MoveAttempt(to=STARTING)
    ),
    "nodes that have not all registered are waited for": row(
        attempt(STARTING), replace(REGISTERED, nodes=[node(0, READY, 0)]), RequeueAttempt()
    ),
    "when all nodes are there a generation is opened": row(
        attempt(STARTING), REGISTERED, reopened(REGISTERED, after_error=False)
    ),
    "nodes that load are waited for": row(
        attempt(STARTING), replace(TRAINING, stepped=False), RequeueAttempt()
    ),
    "the first step makes the attempt run": row(
        attempt(STARTING), TRAINING, MoveAttempt(to=RUNNING)
    ),
    "healthy training is left alone": row(attempt(RUNNING), TRAINING, RequeueAttempt()),
    "when a machine is gone the other ones are stopped at once": row(
        attempt(RUNNING),
        ONE_GONE,
        HaltGeneration(kind=STOP, node_ids=("n0",), reason="a machine is gone"),
    ),
    "under an eviction notice everybody saves and stops": row(
        attempt(RUNNING),
        UNDER_NOTICE,
        HaltGeneration(
            kind=SAVE_AND_STOP, node_ids=("n0", "n1"), reason="Azure announced an eviction"
        ),
    ),
    "a trainer error lets the same nodes start anew": row(
        attempt(RUNNING), ALL_FAILED, reopened(ALL_FAILED, after_error=True)
    ),
    "nodes whose peer's supervisor started anew are not to blame": row(
        attempt(RUNNING, trainer_errors=2),
        PEER_RESTARTED,
        reopened(PEER_RESTARTED, after_error=False),
    ),
    "what was fruitless three times is not begun again at once": row(
        attempt(RUNNING),
        replace(ALL_STOPPED, fruitless=3, opened_at=NOW - 4 * SECOND),
        RequeueAttempt(6 * SECOND),
    ),
    "a trainer that failed after it had committed something has come forward": row(
        attempt(RUNNING, trainer_errors=2),
        replace(ALL_FAILED, fruitless=0),
        reopened(ALL_FAILED, after_error=False),
    ),
    "nodes that merely stopped start anew without blame": row(
        attempt(RUNNING, trainer_errors=2), ALL_STOPPED, reopened(ALL_STOPPED, after_error=False)
    ),
    "a finished rank 0 is about to be believed": row(
        attempt(RUNNING), RANK_0_FINISHED, RequeueAttempt()
    ),
    "a pause waits for a model that is about to be seen": row(
        attempt(RUNNING, stop_as=Outcome.PAUSED), RANK_0_FINISHED, RequeueAttempt()
    ),
    "a cancel stops the nodes without a save": row(
        attempt(RUNNING, stop_as=Outcome.CANCELLED),
        TRAINING,
        HaltGeneration(kind=STOP, node_ids=("n0", "n1"), reason="the job is to be cancelled"),
    ),
    "a pause lets them save": row(
        attempt(RUNNING, stop_as=Outcome.PAUSED),
        TRAINING,
        HaltGeneration(kind=SAVE_AND_STOP, node_ids=("n0", "n1"), reason="the job is to be paused"),
    ),
    "survivors who were told to save are told to stop before they are given up": row(
        attempt(RUNNING),
        halted(ONE_GONE, SAVE_AND_STOP, 5 * MINUTE),
        HaltGeneration(kind=STOP, node_ids=("n0",), reason="a machine is gone"),
    ),
    "survivors have a minute to stop": row(
        attempt(RUNNING),
        halted(ONE_GONE, STOP, MINUTE),
        HaltGeneration(kind=STOP, node_ids=("n0",), reason="a machine is gone"),
    ),
    "who saves has a quarter of an hour": row(
        attempt(RUNNING),
        halted(UNDER_NOTICE, SAVE_AND_STOP, 15 * MINUTE),
        HaltGeneration(
            kind=SAVE_AND_STOP, node_ids=("n0", "n1"), reason="Azure announced an eviction"
        ),
    ),
    "a scale set that must go is deleted": row(
        attempt(TERMINATING, outcome=Outcome.EVICTED), BOOTED, DeleteScaleSet()
    ),
    "a delete that is under way is waited for, however long": row(
        attempt(TERMINATING, outcome=Outcome.EVICTED, ago=timedelta(days=9)),
        AttemptView(scale_set=machines(DELETING)),
        RequeueAttempt(),
    ),
    "a scale set that cannot be seen yet is not taken for gone": row(
        attempt(TERMINATING, outcome=Outcome.CANCELLED, ago=20 * SECOND),
        NONE,
        RequeueAttempt(40 * SECOND),
    ),
    "a scale set that is seen to be gone ends the attempt": row(
        attempt(TERMINATING, outcome=Outcome.CANCELLED, ago=MINUTE),
        NONE,
        MoveAttempt(to=ENDED, outcome=Outcome.CANCELLED),
    ),
}


@pytest.mark.parametrize(("attempt_", "view", "step"), RULES.values(), ids=RULES)
def test_rule(attempt_: Attempt, view: AttemptView, step: AttemptStep) -> None:
    assert next_step(attempt_, view, NOW, PACE) == step


ENDS = {
    "a pause for which a silent member cannot save": row(
        attempt(RUNNING, stop_as=Outcome.PAUSED),
        replace(TRAINING, heard_at=NOW - 5 * MINUTE - SECOND),
        Outcome.PAUSED,
        "asked",
    ),
    "capacity that is refused late": row(
        attempt(PROVISIONING),
        AttemptView(scale_set=machines(BROKEN, 0, error_code="AllocationFailed", failure=NO_ROOM)),
        Outcome.NO_CAPACITY,
        "AllocationFailed",
    ),
    "a scale set that never comes": row(
        attempt(PROVISIONING, ago=40 * MINUTE + SECOND),
        AttemptView(scale_set=machines(CREATING, 0)),
        Outcome.NO_CAPACITY,
        "provisioning for 40 min",
    ),
    "somebody who deletes our scale set": row(
        attempt(PROVISIONING),
        AttemptView(scale_set=machines(DELETING)),
        Outcome.EVICTED,
        "something other than Rekindle",
    ),
    "a cancel while the scale set is made": row(
        attempt(PROVISIONING, stop_as=Outcome.CANCELLED), NONE, Outcome.CANCELLED, "asked"
    ),
    "nodes that never register": row(
        attempt(STARTING, ago=30 * MINUTE + SECOND),
        BOOTED,
        Outcome.UNRESPONSIVE,
        "starting for 30 min",
    ),
    "a machine taken before it registered": row(
        attempt(STARTING),
        replace(REGISTERED, scale_set=machines(running=1), nodes=[node(0, READY, 0)]),
        Outcome.EVICTED,
        "1 of 2 instances evicted without notice",
    ),
    "a machine that lingers stopped": row(
        attempt(STARTING),
        replace(REGISTERED, scale_set=machines(running=1, stopped=1), nodes=[]),
        Outcome.EVICTED,
        "1 of 2",
    ),
    "a whole scale set that vanished": row(
        attempt(RUNNING),
        replace(TRAINING, scale_set=None, nodes=[replace(node(0), present=False), GONE]),
        Outcome.EVICTED,
        "2 of 2",
    ),
    "an eviction after everybody has saved": row(
        attempt(RUNNING),
        NOTICED_AND_STOPPED,
        Outcome.EVICTED,
        "1 of 2 instances evicted after notice",
    ),
    "survivors that do not stop": row(
        attempt(RUNNING),
        halted(ONE_GONE, STOP, MINUTE + SECOND),
        Outcome.EVICTED,
        "did not stop in time",
    ),
    "a save that takes too long": row(
        attempt(RUNNING),
        halted(UNDER_NOTICE, SAVE_AND_STOP, 15 * MINUTE + SECOND),
        Outcome.EVICTED,
        "did not stop in time",
    ),
    "a silent member": row(
        attempt(RUNNING),
        replace(TRAINING, heard_at=NOW - 5 * MINUTE - SECOND),
        Outcome.UNRESPONSIVE,
        "301 s",
    ),
    "a rank 0 that says it has finished, and then nothing": row(
        attempt(RUNNING),
        replace(RANK_0_FINISHED, heard_at=NOW - 5 * MINUTE - SECOND),
        Outcome.UNRESPONSIVE,
        "silent",
    ),
    "the third trainer error in a row": row(
        attempt(RUNNING, trainer_errors=2), ALL_FAILED, Outcome.TRAINER_ERROR, "3 trainer errors"
    ),
    "starts that all came to nothing": row(
        attempt(RUNNING),
        replace(ALL_STOPPED, fruitless=10),
        Outcome.TRAINER_ERROR,
        "10 starts in a row",
    ),
    "a model, whatever its nodes say": row(
        attempt(RUNNING), WITH_MODEL, Outcome.SUCCEEDED, "model"
    ),
    "a committed model, though the machines are gone": row(
        attempt(RUNNING),
        replace(WITH_MODEL, nodes=[replace(node(0), present=False), node(1)]),
        Outcome.SUCCEEDED,
        "committed",
    ),
    "a model that the attempt before committed late": row(
        attempt(STARTING), replace(BOOTED, model_committed=True), Outcome.SUCCEEDED, "committed"
    ),
    "a cancel that came after the model": row(
        attempt(RUNNING, stop_as=Outcome.CANCELLED),
        replace(RANK_0_FINISHED, model_committed=True),
        Outcome.SUCCEEDED,
        "committed",
    ),
    "a cancel once everybody has stopped": row(
        attempt(RUNNING, stop_as=Outcome.CANCELLED), ALL_STOPPED, Outcome.CANCELLED, "asked"
    ),
    "a cancel that nodes do not obey": row(
        attempt(RUNNING, stop_as=Outcome.CANCELLED),
        halted(TRAINING, STOP, MINUTE + SECOND),
        Outcome.CANCELLED,
        "asked",
    ),
    "a pause before the first generation": row(
        attempt(STARTING, stop_as=Outcome.PAUSED), BOOTED, Outcome.PAUSED, "asked"
    ),
}


@pytest.mark.parametrize(("attempt_", "view", "outcome", "reason"), ENDS.values(), ids=ENDS)
def test_an_attempt_is_ended_by(
    attempt_: Attempt, view: AttemptView, outcome: Outcome, reason: str
) -> None:
    step = next_step(attempt_, view, NOW, PACE)

    assert isinstance(step, MoveAttempt)
    assert (step.to, step.outcome) == (TERMINATING, outcome)
    assert reason in step.reason


@pytest.mark.parametrize("state", sorted(set(AttemptState)))
@pytest.mark.parametrize("stop_as", [None, Outcome.CANCELLED, Outcome.PAUSED, Outcome.OVER_BUDGET])
@pytest.mark.parametrize("view", [NONE, BOOTED, TRAINING, ONE_GONE, ALL_FAILED, WITH_MODEL])
def test_whatever_is_seen_the_move_exists_and_its_outcome_is_known_in_time(
    state: AttemptState, stop_as: Outcome | None, view: AttemptView
) -> None:
    is_over = state in (TERMINATING, ENDED)
    outcome = Outcome.EVICTED if is_over else None
    attempt_ = attempt(state, stop_as=stop_as, outcome=outcome, ago=2 * MINUTE)

    step = next_step(attempt_, view, NOW, PACE)

    if isinstance(step, MoveAttempt):
        assert step.to in ATTEMPT_MOVES[state]
        assert (step.to in (TERMINATING, ENDED)) == (step.outcome is not None)
