"""Waits for nodes that end whatever nodes say, and however often the service was away."""

from dataclasses import replace
from datetime import timedelta

import pytest

from service.domain.lifecycle.attempt import (
    LONGEST_EXCUSE,
    Attempt,
    AttemptView,
    MoveAttempt,
    RequeueAttempt,
)
from service.domain.lifecycle.attempt_steps import next_step
from service.domain.lifecycle.generation import HaltGeneration
from service.domain.states import TIME_LIMITS, AttemptState, Outcome
from tests.unit.attempts.attempt_facts import (
    ALL_FAILED,
    BOOTED,
    CREATING,
    MINUTE,
    NOW,
    ONE_GONE,
    PACE,
    PROVISIONING,
    RANK_0_FINISHED,
    RUNNING,
    SAVE_AND_STOP,
    SECOND,
    STARTING,
    STOP,
    TERMINATING,
    TRAINING,
    UNDER_NOTICE,
    attempt,
    halted,
    machines,
)
from trainer.contract import DirectiveKind


@pytest.mark.parametrize("state", [STARTING, RUNNING])
@pytest.mark.parametrize("stop_as", [Outcome.CANCELLED, Outcome.PAUSED, Outcome.OVER_BUDGET])
@pytest.mark.parametrize("kind", [None, SAVE_AND_STOP, STOP])
@pytest.mark.parametrize("seen", [BOOTED, TRAINING, ONE_GONE, ALL_FAILED, RANK_0_FINISHED])
@pytest.mark.parametrize("planned", [None, 40.0, 7200.0])
def test_machines_go_when_the_time_to_save_is_over_whatever_they_say_and_whoever_was_deaf(
    state: AttemptState,
    stop_as: Outcome,
    kind: DirectiveKind | None,
    seen: AttemptView,
    planned: float | None,
) -> None:
    allowed = 40 * SECOND if planned == 40.0 else PACE.save
    over = replace(
        attempt(state, stop_as=stop_as),
        over_budget_at=NOW - allowed - SECOND,
        save_seconds=planned,
    )
    told = halted(seen, kind, SECOND) if kind else seen

    step = next_step(over, replace(told, awake_since=NOW), NOW, PACE)

    assert isinstance(step, MoveAttempt)
    assert (step.to, step.outcome) == (TERMINATING, stop_as)


@pytest.mark.parametrize("state", [STARTING, RUNNING])
def test_machines_may_save_for_as_long_as_the_budget_reserves_for_it(state: AttemptState) -> None:
    row = replace(
        attempt(state, stop_as=Outcome.OVER_BUDGET),
        over_budget_at=NOW - 40 * SECOND,
        save_seconds=40.0,
    )

    assert isinstance(next_step(row, TRAINING, NOW, PACE), HaltGeneration)


@pytest.mark.parametrize(
    ("row", "seen"),
    [
        (attempt(RUNNING), halted(ONE_GONE, STOP, LONGEST_EXCUSE + 2 * MINUTE)),
        (attempt(RUNNING), halted(UNDER_NOTICE, SAVE_AND_STOP, LONGEST_EXCUSE + 16 * MINUTE)),
        (attempt(STARTING, ago=LONGEST_EXCUSE + 31 * MINUTE), BOOTED),
        (attempt(RUNNING, stop_as=Outcome.CANCELLED), halted(TRAINING, STOP, 2 * MINUTE)),
    ],
)
def test_no_rhythm_of_rounds_excuses_machines_for_ever(row: Attempt, seen: AttemptView) -> None:
    step = next_step(row, replace(seen, awake_since=NOW), NOW, PACE)

    assert isinstance(step, MoveAttempt)
    assert step.to is TERMINATING


def test_machines_that_start_have_their_time_anew_once_the_service_hears_them_again() -> None:
    limit, _ = TIME_LIMITS[STARTING]
    late = attempt(STARTING, ago=limit + SECOND)

    assert isinstance(next_step(late, BOOTED, NOW, PACE), MoveAttempt)
    assert next_step(late, replace(BOOTED, awake_since=NOW), NOW, PACE) == RequeueAttempt()


def test_a_scale_set_that_could_not_be_looked_for_is_not_taken_for_gone() -> None:
    late = attempt(TERMINATING, outcome=Outcome.CANCELLED, ago=600 * MINUTE)

    assert (
        next_step(late, AttemptView(scale_set=None, cloud_unreachable=True), NOW, PACE)
        == RequeueAttempt()
    )
    assert isinstance(next_step(late, AttemptView(scale_set=None), NOW, PACE), MoveAttempt)


@pytest.mark.parametrize(("state", "steps"), [(PROVISIONING, 0), (STARTING, 2)])
@pytest.mark.parametrize("planned", [0 * SECOND, 30 * MINUTE])
def test_a_time_limit_is_over_only_when_it_has_passed_with_its_steps(
    state: AttemptState, steps: int, planned: timedelta
) -> None:
    limit, outcome = TIME_LIMITS[state]
    seen = AttemptView(scale_set=machines(CREATING, 0)) if state is PROVISIONING else BOOTED
    ago, step = limit + steps * planned, planned.total_seconds()
    rows = [replace(attempt(state, ago=a), step_seconds=step) for a in (ago, ago + SECOND)]

    just, past = (next_step(row, seen, NOW, PACE) for row in rows)

    assert just == RequeueAttempt()
    assert isinstance(past, MoveAttempt)
    assert past.outcome is outcome
