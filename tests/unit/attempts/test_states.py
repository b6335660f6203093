"""Facts about the tables of the life cycle."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from service.domain.lifecycle.attempt_steps import DECISIONS
from service.domain.states import (
    ATTEMPT_ENDING,
    ATTEMPT_MOVES,
    JOB_AFTER,
    JOB_MOVES,
    JOB_TERMINAL,
    OPENAI_STATUS,
    TIME_LIMITS,
    AttemptState,
    JobState,
    Outcome,
)

OPENAI = {"validating_files", "queued", "running", "succeeded", "failed", "cancelled"}
LIVE_JOBS = {JobState.QUEUED, JobState.RUNNING, JobState.RECOVERING}


def reachable(start: str, moves: Mapping[Any, frozenset[Any]]) -> set[str]:
    """Every state that a life from ``start`` may come to, itself included."""
    seen, todo = {start}, [start]
    while todo:
        news = moves[todo.pop()] - seen
        seen |= news
        todo += news
    return seen


def test_every_state_is_reached_from_the_first_one() -> None:
    assert reachable(AttemptState.PENDING, ATTEMPT_MOVES) == set(AttemptState)
    assert reachable(JobState.VALIDATING, JOB_MOVES) == set(JobState)


@pytest.mark.parametrize("state", AttemptState)
def test_every_attempt_can_come_to_its_end(state: AttemptState) -> None:
    assert AttemptState.ENDED in reachable(state, ATTEMPT_MOVES)


@pytest.mark.parametrize("state", JobState)
def test_every_job_can_come_to_an_end(state: JobState) -> None:
    assert JOB_TERMINAL & reachable(state, JOB_MOVES)


@pytest.mark.parametrize("state", sorted(set(JobState) - JOB_TERMINAL))
def test_every_job_that_is_not_over_can_be_cancelled_and_can_fail(state: JobState) -> None:
    assert {JobState.CANCELLED, JobState.FAILED} <= JOB_MOVES[state]


def test_an_end_is_final() -> None:
    assert {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED} == JOB_TERMINAL
    assert ATTEMPT_MOVES[AttemptState.ENDED] == frozenset()


def test_once_a_scale_set_may_exist_only_terminating_leads_to_ended() -> None:
    into_ended = {s for s, to in ATTEMPT_MOVES.items() if AttemptState.ENDED in to}

    assert into_ended == {AttemptState.PENDING, AttemptState.TERMINATING}


def test_every_state_in_which_a_scale_set_may_exist_can_be_given_up() -> None:
    may_exist = set(AttemptState) - {AttemptState.PENDING} - ATTEMPT_ENDING

    assert all(AttemptState.TERMINATING in ATTEMPT_MOVES[s] for s in may_exist)


def test_no_attempt_ever_goes_back() -> None:
    order = list(AttemptState)
    assert all(
        order.index(to) > order.index(was) for was, moves in ATTEMPT_MOVES.items() for to in moves
    )


def test_every_state_has_a_row_and_a_decision() -> None:
    assert set(ATTEMPT_MOVES) == set(DECISIONS) == set(AttemptState)
    assert set(JOB_MOVES) == set(JobState)


@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize("state", sorted(LIVE_JOBS))
def test_every_outcome_decides_a_job_move_that_exists(outcome: Outcome, state: JobState) -> None:
    after = JOB_AFTER[outcome]

    assert after is None or after in JOB_MOVES[state]


def test_only_what_is_nobodys_fault_is_tried_again() -> None:
    again = {o for o, after in JOB_AFTER.items() if after is None}

    assert again == {
        Outcome.EVICTED,
        Outcome.NO_CAPACITY,
        Outcome.PROVISIONING_FAILED,
        Outcome.UNRESPONSIVE,
    }


def test_states_that_wait_for_others_have_a_time_limit() -> None:
    assert set(TIME_LIMITS) == {AttemptState.PROVISIONING, AttemptState.STARTING}
    assert all(limit > timedelta(0) for limit, _ in TIME_LIMITS.values())


def test_a_scale_set_that_must_go_is_never_given_up() -> None:
    assert AttemptState.TERMINATING not in TIME_LIMITS


def test_running_out_of_time_lets_the_job_try_again() -> None:
    assert all(JOB_AFTER[outcome] is None for _, outcome in TIME_LIMITS.values())


def test_openais_clients_know_every_status() -> None:
    assert set(OPENAI_STATUS) == set(JobState)
    assert set(OPENAI_STATUS.values()) == OPENAI


def test_openais_clients_stop_polling_when_the_job_is_over_and_not_before() -> None:
    final = {OPENAI_STATUS[s] for s in JOB_TERMINAL}

    assert final == {"succeeded", "failed", "cancelled"}
    assert not final & {OPENAI_STATUS[s] for s in set(JobState) - JOB_TERMINAL}
