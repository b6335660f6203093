"""Waits for nodes that end whatever nodes say, and how long those that stop are left alone."""

from dataclasses import replace
from datetime import timedelta

import pytest

from service.domain.lifecycle.attempt import (
    LONGEST_EXCUSE,
    Attempt,
    AttemptTiming,
    AttemptView,
    MoveAttempt,
    RequeueAttempt,
)
from service.domain.lifecycle.attempt_steps import next_step
from service.domain.lifecycle.generation import HaltGeneration
from service.domain.lifecycle.node import NodeRecord, apply_heartbeat, should_wake_reconciler
from service.domain.states import TIME_LIMITS, AttemptState, Outcome
from service.reconciler.attempts import requeue_delay
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
    START,
    STARTING,
    STOP,
    TERMINATING,
    TRAINING,
    TRAINS,
    UNDER_NOTICE,
    attempt,
    halted,
    machines,
)
from trainer.contract import DirectiveKind, EvictionNotice, Heartbeat, NodePhase


@pytest.mark.parametrize("state", [STARTING, RUNNING])
@pytest.mark.parametrize("stop_as", [Outcome.CANCELLED, Outcome.PAUSED, Outcome.OVER_BUDGET])
@pytest.mark.parametrize("kind", [None, SAVE_AND_STOP, STOP])
@pytest.mark.parametrize("view", [BOOTED, TRAINING, ONE_GONE, ALL_FAILED, RANK_0_FINISHED])
@pytest.mark.parametrize("planned", [None, 40.0, 7200.0])
def test_machines_go_when_the_time_to_save_is_over_whatever_they_say_and_whoever_was_deaf(
    state: AttemptState,
    stop_as: Outcome,
    kind: DirectiveKind | None,
    view: AttemptView,
    planned: float | None,
) -> None:
    allowed = 40 * SECOND if planned == 40.0 else PACE.save
    expired = replace(
        attempt(state, stop_as=stop_as), over_budget_at=NOW - allowed - SECOND, save_seconds=planned
    )
    stopping = halted(view, kind, SECOND) if kind else view

    step = next_step(expired, replace(stopping, awake_since=NOW), NOW, PACE)

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
    ("row", "view"),
    [
        (attempt(RUNNING), halted(ONE_GONE, STOP, LONGEST_EXCUSE + 2 * MINUTE)),
        (attempt(RUNNING), halted(UNDER_NOTICE, SAVE_AND_STOP, LONGEST_EXCUSE + 16 * MINUTE)),
        (attempt(STARTING, ago=LONGEST_EXCUSE + 31 * MINUTE), BOOTED),
        (attempt(RUNNING, stop_as=Outcome.CANCELLED), halted(TRAINING, STOP, 2 * MINUTE)),
    ],
)
def test_no_rhythm_of_rounds_excuses_machines_for_ever(row: Attempt, view: AttemptView) -> None:
    step = next_step(row, replace(view, awake_since=NOW), NOW, PACE)

    assert isinstance(step, MoveAttempt)
    assert step.to is TERMINATING


def test_machines_that_start_have_their_time_anew_once_the_service_hears_them_again() -> None:
    limit, _ = TIME_LIMITS[STARTING]
    overdue = attempt(STARTING, ago=limit + SECOND)

    assert isinstance(next_step(overdue, BOOTED, NOW, PACE), MoveAttempt)
    assert next_step(overdue, replace(BOOTED, awake_since=NOW), NOW, PACE) == RequeueAttempt()


def test_a_scale_set_that_could_not_be_looked_for_is_not_taken_for_gone() -> None:
    overdue = attempt(TERMINATING, outcome=Outcome.CANCELLED, ago=600 * MINUTE)

    assert (
        next_step(overdue, AttemptView(scale_set=None, cloud_unreachable=True), NOW, PACE)
        == RequeueAttempt()
    )
    assert isinstance(next_step(overdue, AttemptView(scale_set=None), NOW, PACE), MoveAttempt)


@pytest.mark.parametrize(("state", "steps"), [(PROVISIONING, 0), (STARTING, 2)])
@pytest.mark.parametrize("planned", [0 * SECOND, 30 * MINUTE])
def test_a_time_limit_is_over_only_when_it_has_passed_with_its_steps(
    state: AttemptState, steps: int, planned: timedelta
) -> None:
    limit, outcome = TIME_LIMITS[state]
    view = AttemptView(scale_set=machines(CREATING, 0)) if state is PROVISIONING else BOOTED
    ago, step = limit + steps * planned, planned.total_seconds()
    rows = [replace(attempt(state, ago=a), step_seconds=step) for a in (ago, ago + SECOND)]

    just, past = (next_step(row, view, NOW, PACE) for row in rows)

    assert just == RequeueAttempt()
    assert isinstance(past, MoveAttempt)
    assert past.outcome is outcome


SETTLING = AttemptTiming(poll=10 * SECOND, settle=60 * SECOND, save=900 * SECOND)
NODE = NodeRecord(
    node_id="n",
    attempt_id="a",
    vm_id="v",
    boot_id="b",
    address="10.0.0.4",
    phase=TRAINS,
    generation=2,
    step=5,
    free_port=29500,
    directive_kind=START,
    directive_number=2,
)
NOTICE = EvictionNotice(event_id="e", not_before=0.0, seen_at=0.0)


@pytest.mark.parametrize(
    ("halt_kind", "ago", "requested", "pause"),
    [
        (None, 0, SAVE_AND_STOP, 10.0),
        (SAVE_AND_STOP, 600, SAVE_AND_STOP, 10.0),
        (SAVE_AND_STOP, 897, SAVE_AND_STOP, 3.1),
        (STOP, 55, STOP, 5.1),
        (STOP, 60, STOP, 0.1),
        (SAVE_AND_STOP, 600, STOP, 10.0),  # the time for STOP begins now
    ],
)
def test_members_that_stop_are_left_alone_for_a_poll_and_never_beyond_their_time(
    halt_kind: DirectiveKind | None, ago: int, requested: DirectiveKind, pause: float
) -> None:
    halted_at = NOW - timedelta(seconds=ago) if halt_kind else None
    view = AttemptView(scale_set=None, halted_at=halted_at, halt_kind=halt_kind)
    step = HaltGeneration(kind=requested, node_ids=("n",), reason="")

    assert requeue_delay.while_stopping(view, step, SETTLING, NOW) == timedelta(seconds=pause)


@pytest.mark.parametrize(
    ("kind", "number", "phase", "urgent"),
    [
        (START, 2, TRAINS, True),
        (SAVE_AND_STOP, 2, TRAINS, False),
        (STOP, 2, TRAINS, False),
        (STOP, 1, TRAINS, True),
        (STOP, 2, NodePhase.STOPPED, True),  # it has said so, and says nothing more
    ],
)
def test_a_notice_is_urgent_unless_the_machine_is_about_to_say_that_it_stopped(
    kind: DirectiveKind, number: int, phase: NodePhase, urgent: bool
) -> None:
    directive = {"directive_kind": kind, "directive_number": number, "phase": phase}
    before = NodeRecord(**vars(NODE) | directive)
    heartbeat = Heartbeat(
        epoch=1, seq=1, phase=phase, generation=2, step=5, free_port=29500, eviction=NOTICE
    )
    after = apply_heartbeat(before, heartbeat, 0.0)

    assert isinstance(after, NodeRecord)
    assert should_wake_reconciler(before, after, heartbeat) is urgent
