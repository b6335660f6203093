"""Whatever the cloud, the nodes, the user and the clock do: nothing leaks, nothing sticks."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from service.domain.cloud.fleet import Instance, ScaleSetPhase
from service.domain.lifecycle import attempt_steps
from service.domain.lifecycle import job as jobs
from service.domain.lifecycle.attempt import (
    Attempt,
    AttemptStep,
    AttemptTiming,
    AttemptView,
    CreateScaleSet,
    DeleteScaleSet,
    MoveAttempt,
    OpenGeneration,
)
from service.domain.lifecycle.generation import HaltGeneration
from service.domain.lifecycle.job import Job, StartAttempt
from service.domain.states import AttemptState, JobState
from tests.unit.lifecycle_events import live
from tests.unit.lifecycle_service import Decisions, Violation

LIVES = 600
LIVES_PER_FAULT = 300


def test_every_life_keeps_every_promise_and_comes_to_its_end(
    record_property: Callable[[str, object], None],
) -> None:
    ends = []
    for seed in range(LIVES):
        life = live(seed)
        if life.job.state is JobState.FAILED:
            assert life.crashes >= attempt_steps.MAX_TRAINER_ERRORS, seed
        if life.job.state is JobState.CANCELLED:
            assert life.job.cancel_requested, seed
        ends.append((life.job.state, len(life.attempts), len(life.generations)))

    record_property("lives", len(ends))
    record_property("attempts", sum(n for _, n, _ in ends))
    record_property("generations", sum(n for _, _, n in ends))
    assert {state for state, _, _ in ends} == {
        JobState.SUCCEEDED,
        JobState.FAILED,
        JobState.CANCELLED,
    }
    assert max(n for _, n, _ in ends) > 3
    assert max(n for _, _, n in ends) > 5


# --- planted faults: each promise is really watched ----------------------------------------------


def _ended_when_delete_is_accepted(
    a: Attempt, seen: AttemptView, now: datetime, pace: AttemptTiming
) -> AttemptStep:
    deleting = seen.scale_set and seen.scale_set.phase is ScaleSetPhase.DELETING
    if a.state is AttemptState.TERMINATING and deleting:
        return MoveAttempt(to=AttemptState.ENDED, outcome=a.outcome)
    return attempt_steps.next_step(a, seen, now, pace)


def _first_not_found_believed(
    a: Attempt, seen: AttemptView, now: datetime, pace: AttemptTiming
) -> AttemptStep:
    return attempt_steps.next_step(a, seen, now, replace(pace, read_lag=timedelta(0)))


def _effect_before_intent(
    a: Attempt, seen: AttemptView, now: datetime, pace: AttemptTiming
) -> AttemptStep:
    step = attempt_steps.next_step(a, seen, now, pace)
    return (
        CreateScaleSet()
        if isinstance(step, MoveAttempt) and step.to is AttemptState.PROVISIONING
        else step
    )


def _eviction_ignored(
    a: Attempt, seen: AttemptView, now: datetime, pace: AttemptTiming
) -> AttemptStep:
    if a.state not in (AttemptState.STARTING, AttemptState.RUNNING) or seen.scale_set is None:
        return attempt_steps.next_step(a, seen, now, pace)
    all_there = tuple(Instance(instance_id="", vm_id=n.vm_id, name="") for n in seen.nodes)
    scale_set = replace(seen.scale_set, instances=all_there)
    nodes = [replace(n, present=True, evicting=False) for n in seen.nodes]
    return attempt_steps.next_step(a, replace(seen, scale_set=scale_set, nodes=nodes), now, pace)


def _wish_ignored(a: Attempt, seen: AttemptView, now: datetime, pace: AttemptTiming) -> AttemptStep:
    return attempt_steps.next_step(replace(a, wish=None), seen, now, pace)


def _no_time_limits(
    a: Attempt, seen: AttemptView, now: datetime, pace: AttemptTiming
) -> AttemptStep:
    patient = replace(a, since=now) if a.state is AttemptState.STARTING else a
    return attempt_steps.next_step(patient, seen, now, pace)


def _silence_ignored(
    a: Attempt, seen: AttemptView, now: datetime, pace: AttemptTiming
) -> AttemptStep:
    return attempt_steps.next_step(a, replace(seen, heard_at=None), now, pace)


def _ended_without_a_delete(
    a: Attempt, seen: AttemptView, now: datetime, pace: AttemptTiming
) -> AttemptStep:
    step = attempt_steps.next_step(a, seen, now, pace)
    return (
        MoveAttempt(to=AttemptState.ENDED, outcome=a.outcome)
        if isinstance(step, DeleteScaleSet)
        else step
    )


def _opened_over_a_living_one(
    a: Attempt, seen: AttemptView, now: datetime, pace: AttemptTiming
) -> AttemptStep:
    step = attempt_steps.next_step(a, seen, now, pace)
    free = tuple(n for n in seen.nodes if n.present)
    if isinstance(step, HaltGeneration) and len(free) == a.instance_count:
        return OpenGeneration(nodes=free)
    return step


def _second_attempt_beside_the_first(job: Job, now: datetime) -> jobs.JobStep:
    last = job.last_attempt
    if last and last.state is AttemptState.RUNNING:
        return StartAttempt(number=last.number + 1)
    return jobs.next_step(job, now)


_NO_LEAK = "what costs money belongs to an attempt that knows it"
_AN_END = "every job comes to its end, and nothing is left"
_TOLD = "who survives an eviction is told at once"
FAULTS = {
    "ended when delete is accepted": (
        Decisions(attempt=_ended_when_delete_is_accepted),
        _NO_LEAK,
    ),
    "ended without a delete": (Decisions(attempt=_ended_without_a_delete), _NO_LEAK),
    "first NotFound believed": (Decisions(attempt=_first_not_found_believed), _NO_LEAK),
    "effect before intent": (Decisions(attempt=_effect_before_intent), _NO_LEAK),
    "eviction ignored": (Decisions(attempt=_eviction_ignored), _TOLD),
    "wish ignored": (Decisions(attempt=_wish_ignored), "a cancel is granted soon"),
    "no time limits": (Decisions(attempt=_no_time_limits), _AN_END),
    "silence ignored": (Decisions(attempt=_silence_ignored), _AN_END),
    "opened over a living one": (
        Decisions(attempt=_opened_over_a_living_one),
        "one generation trains at a time",
    ),
    "second attempt beside the first": (
        Decisions(job=_second_attempt_beside_the_first),
        "one live attempt",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    decisions, promise = FAULTS[fault]

    assert promise in _broken_promises(decisions), f"{LIVES_PER_FAULT} lives kept: {promise}"


def _broken_promises(decisions: Decisions) -> Iterator[str]:
    for seed in range(LIVES_PER_FAULT):
        try:
            live(seed, decisions)
        except Violation as violation:
            yield violation.promise
