"""Facts about the tables of the life cycle."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from service.domain.lifecycle.attempt_steps import DECISIONS
from service.domain.states import (
    ATTEMPT_MOVES,
    ATTEMPT_WITH_OUTCOME,
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


def test_every_state_is_reached_from_the_first_one_and_leads_to_an_end() -> None:
    assert reachable(AttemptState.PENDING, ATTEMPT_MOVES) == set(AttemptState)
    assert reachable(JobState.VALIDATING, JOB_MOVES) == set(JobState)
    assert all(AttemptState.ENDED in reachable(state, ATTEMPT_MOVES) for state in AttemptState)
    assert all(JOB_TERMINAL & reachable(state, JOB_MOVES) for state in JobState)
    assert set(ATTEMPT_MOVES) == set(DECISIONS)


def test_an_end_is_final_and_every_job_that_is_not_over_can_be_cancelled_and_can_fail() -> None:
    assert {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED} == JOB_TERMINAL
    assert ATTEMPT_MOVES[AttemptState.ENDED] == frozenset()
    ends = {JobState.CANCELLED, JobState.FAILED}
    assert all(ends <= JOB_MOVES[state] for state in set(JobState) - JOB_TERMINAL)


def test_once_a_scale_set_may_exist_only_terminating_leads_to_ended_and_nothing_back() -> None:
    into_ended = {s for s, to in ATTEMPT_MOVES.items() if AttemptState.ENDED in to}
    may_exist = set(AttemptState) - {AttemptState.PENDING} - ATTEMPT_WITH_OUTCOME
    order = list(AttemptState)

    assert into_ended == {AttemptState.PENDING, AttemptState.TERMINATING}
    assert all(AttemptState.TERMINATING in ATTEMPT_MOVES[s] for s in may_exist)
    assert all(
        order.index(to) > order.index(was) for was, moves in ATTEMPT_MOVES.items() for to in moves
    )


def test_every_outcome_decides_a_job_move_that_exists() -> None:
    for outcome, after in JOB_AFTER.items():
        assert after is None or all(after in JOB_MOVES[state] for state in LIVE_JOBS), outcome
    assert set(JOB_AFTER) == set(Outcome)


def test_only_what_is_nobodys_fault_is_tried_again_also_when_time_runs_out() -> None:
    retried = {o for o, after in JOB_AFTER.items() if after is None}

    assert retried == {
        Outcome.EVICTED,
        Outcome.NO_CAPACITY,
        Outcome.PROVISIONING_FAILED,
        Outcome.UNRESPONSIVE,
    }
    assert set(TIME_LIMITS) == {AttemptState.PROVISIONING, AttemptState.STARTING}, "none to go"
    assert all(limit > timedelta(0) and o in retried for limit, o in TIME_LIMITS.values())


def test_openais_clients_know_every_status_and_stop_polling_when_the_job_is_over() -> None:
    final = {OPENAI_STATUS[s] for s in JOB_TERMINAL}

    assert set(OPENAI_STATUS) == set(JobState)
    assert set(OPENAI_STATUS.values()) == OPENAI
    assert final == {"succeeded", "failed", "cancelled"}
    assert not final & {OPENAI_STATUS[s] for s in set(JobState) - JOB_TERMINAL}
