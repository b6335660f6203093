"""Elastic jobs keep every promise of whole lives, and some of their own."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from itertools import pairwise

import pytest

from service.domain.lifecycle import attempt_steps
from service.domain.lifecycle.attempt import (
    Attempt,
    AttemptStep,
    AttemptTiming,
    AttemptView,
    MoveAttempt,
    OpenGeneration,
    RefillScaleSet,
    RequeueAttempt,
)
from service.domain.lifecycle.elastic import ElasticNodes, StepBatch, allowed_node_counts
from service.domain.lifecycle.generation import HaltGeneration
from service.domain.states import AttemptState, JobState
from tests.unit.lifecycle_events import live
from tests.unit.lifecycle_service import Decisions, Violation
from tests.unit.lifecycle_world import Life

LIVES = 400
LIVES_PER_FAULT = 300
BATCH = StepBatch(rows=8, rows_per_node=2)  # three nodes are no faster than two
ELASTIC = ElasticNodes(
    min_nodes=2, node_counts=allowed_node_counts(BATCH, min_nodes=2, nodes=4), batch=BATCH
)


def test_every_elastic_life_keeps_every_promise_and_comes_to_its_end(
    record_property: Callable[[str, object], None],
) -> None:
    lives = [live(seed, elastic=ELASTIC) for seed in range(LIVES)]

    for seed, life in enumerate(lives):
        if life.job.state is JobState.FAILED:
            assert life.crashes >= attempt_steps.MAX_TRAINER_ERRORS, seed
    changes = [change for life in lives for change in _changes(life)]
    record_property("shrunk", sum(change < 0 for change in changes))
    record_property("grown", sum(change > 0 for change in changes))
    assert ELASTIC.node_counts == (2, 4)
    assert {life.job.state for life in lives} >= {JobState.SUCCEEDED, JobState.CANCELLED}
    assert sum(change < 0 for change in changes) > 20
    assert sum(change > 0 for change in changes) > 5


def _changes(life: Life) -> Iterator[int]:
    """By how many nodes the worlds of one attempt differ."""
    for before, after in pairwise(life.generations[n] for n in sorted(life.generations)):
        if before.attempt_id == after.attempt_id:
            yield len(after.members) - len(before.members)


# --- planted faults: each promise is really watched ----------------------------------------------


def _with_whoever_is_there(
    a: Attempt, seen: AttemptView, now: datetime, pace: AttemptTiming
) -> AttemptStep:
    """Ignores what the batch allows, and min_nodes."""
    any_number = replace(ELASTIC, node_counts=(1, 2, 3, 4))
    return attempt_steps.next_step(replace(a, elastic=any_number), seen, now, pace)


def _over_those_that_still_stop(
    a: Attempt, seen: AttemptView, now: datetime, pace: AttemptTiming
) -> AttemptStep:
    step = attempt_steps.next_step(a, seen, now, pace)
    there = tuple(n for n in seen.nodes if n.stays)[:2]
    told = isinstance(step, HaltGeneration) and seen.halt_kind is step.kind
    return OpenGeneration(nodes=there) if told and len(there) == 2 else step


def _blaming_survivors(
    a: Attempt, seen: AttemptView, now: datetime, pace: AttemptTiming
) -> AttemptStep:
    step = attempt_steps.next_step(a, seen, now, pace)
    return replace(step, after_error=True) if isinstance(step, OpenGeneration) else step


def _waiting_for_lost_machines(
    a: Attempt, seen: AttemptView, now: datetime, pace: AttemptTiming
) -> AttemptStep:
    """Below min_nodes nothing is given up, and nothing is asked for."""
    step = attempt_steps.next_step(a, seen, now, pace)
    given_up = isinstance(step, MoveAttempt) and step.to is AttemptState.TERMINATING
    asks = isinstance(step, RefillScaleSet)
    return RequeueAttempt() if (given_up and not a.wish) or asks else step


FAULTS = {
    "with whoever is there": (
        _with_whoever_is_there,
        "a world is one that job and batch allow",
    ),
    "over those that still stop": (
        _over_those_that_still_stop,
        "one generation trains at a time",
    ),
    "blaming survivors": (_blaming_survivors, "an eviction is no trainer error"),
    "waiting for lost machines": (
        _waiting_for_lost_machines,
        "every job comes to its end, and nothing is left",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    decide, promise = FAULTS[fault]

    assert promise in _broken_promises(Decisions(attempt=decide)), f"all lives kept: {promise}"


def _broken_promises(decisions: Decisions) -> Iterator[str]:
    for seed in range(LIVES_PER_FAULT):
        try:
            live(seed, decisions, ELASTIC)
        except Violation as violation:
            yield violation.promise
