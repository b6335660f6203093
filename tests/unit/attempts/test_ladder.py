"""When memory runs out the same rows are trained with less at once; one rule, one sentence."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.lifecycle.attempt import MAX_FRUITLESS, AttemptView, MoveAttempt, OpenGeneration
from service.domain.lifecycle.attempt_steps import next_step
from service.domain.lifecycle.oom_fallback import OomFallback, next_rung, rungs_from
from service.domain.states import Outcome
from tests.unit.attempts.attempt_facts import (
    ALL_FAILED,
    NOW,
    PACE,
    RUNNING,
    STARTING,
    attempt,
    reopened,
)
from trainer.contract import Rung
from trainer.data.order import micro_batch_samples

FOUR = Rung(micro_batch=4, gradient_checkpointing=False)
LOWEST = Rung(micro_batch=1, gradient_checkpointing=True)
RUNGS = st.builds(Rung, micro_batch=st.integers(1, 1024), gradient_checkpointing=st.booleans())


@pytest.mark.parametrize(
    ("planned", "sizes", "last_is_recomputed"),
    [
        (FOUR, [4, 2, 1, 1], True),
        (Rung(micro_batch=8, gradient_checkpointing=True), [8, 4, 2, 1], True),
        (Rung(micro_batch=12, gradient_checkpointing=True), [12, 6, 3, 1], True),
        (Rung(micro_batch=7, gradient_checkpointing=False), [7, 1, 1], True),
        (LOWEST, [1], True),
    ],
)
def test_micro_batches_get_smaller_and_then_activations_are_computed_again(
    planned: Rung, sizes: list[int], last_is_recomputed: bool
) -> None:
    rungs = list(rungs_from(planned))

    assert [rung.micro_batch for rung in rungs] == sizes
    assert rungs[-1].gradient_checkpointing is last_is_recomputed
    assert all(r.gradient_checkpointing is planned.gradient_checkpointing for r in rungs[:-1])


@given(RUNGS)
def test_the_ladder_ends_and_leads_down_only(planned: Rung) -> None:
    rungs = list(rungs_from(planned))

    assert len(rungs) <= 12
    assert rungs[-1] == LOWEST
    for above, below in pairwise(rungs):
        assert below.micro_batch <= above.micro_batch
        assert below.gradient_checkpointing >= above.gradient_checkpointing
        assert above != below
        assert above.micro_batch % below.micro_batch == 0


@given(RUNGS, st.integers(1, 200), st.integers(1, 5))
def test_every_rung_trains_the_same_samples_in_a_step(
    planned: Rung, global_batch: int, world: int
) -> None:
    for rung in rungs_from(planned):
        ranks = [
            micro_batch_samples(100, global_batch, rung.micro_batch, world, rank)
            for rank in range(world)
        ]
        samples = sorted(s for rank in ranks for micro in rank for s in micro)
        assert samples == list(range(100, 100 + global_batch))
        assert len({len(rank) for rank in ranks}) == 1


def ran_out(ladder: OomFallback, **more: object) -> AttemptView:
    """Everybody has failed in step 17, as memory ran out there."""
    return replace(ALL_FAILED, oom_fallback=replace(ladder, oom_step=17), **more)  # type: ignore[arg-type]


def test_memory_that_runs_out_leads_to_the_next_rung_and_nobody_is_to_blame() -> None:
    seen = ran_out(OomFallback(planned=FOUR), opened_at=NOW)
    step = next_step(attempt(RUNNING, trainer_errors=2), seen, NOW, PACE)

    assert isinstance(step, OpenGeneration)
    assert step.rung == replace(FOUR, micro_batch=2)
    assert step.because == "micro-batch 2 instead of 4: memory ran out in step 17"
    assert not step.after_error


def test_it_goes_down_from_the_rung_on_which_it_is() -> None:
    one = replace(FOUR, micro_batch=1)
    step = next_step(attempt(RUNNING), ran_out(OomFallback(planned=FOUR, rung=one)), NOW, PACE)

    assert isinstance(step, OpenGeneration)
    assert step.rung == LOWEST
    assert "activations computed again" in step.because


def test_whatever_else_ends_a_generation_leaves_the_rung_as_it_is() -> None:
    two = replace(FOUR, micro_batch=2)
    seen = replace(ALL_FAILED, oom_fallback=OomFallback(planned=FOUR, rung=two))
    step = next_step(attempt(RUNNING), seen, NOW, PACE)

    assert step == replace(reopened(seen, after_error=True), rung=two)


def test_starts_that_were_fruitless_on_other_grounds_do_not_cut_the_ladder_short() -> None:
    seen = ran_out(OomFallback(planned=FOUR), fruitless=MAX_FRUITLESS)

    assert isinstance(next_step(attempt(RUNNING), seen, NOW, PACE), OpenGeneration)


@pytest.mark.parametrize(
    ("planned", "tried"),
    [
        (FOUR, "micro-batch 4, 2 and 1, then gradient_checkpointing, did not fit"),
        (LOWEST, "micro-batch 1, with gradient_checkpointing, did not fit"),
    ],
)
def test_on_the_lowest_rung_the_job_ends_and_says_what_was_tried_and_what_to_do(
    planned: Rung, tried: str
) -> None:
    seen = ran_out(OomFallback(planned=planned, rung=LOWEST))
    step = next_step(attempt(STARTING), seen, NOW, PACE)

    assert isinstance(step, MoveAttempt)
    assert step.outcome is Outcome.TRAINER_ERROR
    assert step.reason.startswith("memory ran out in step 17")
    assert tried in step.reason
    assert "LoRA or QLoRA" in step.reason


def test_on_the_lowest_rung_a_generation_that_committed_something_is_followed_by_another() -> None:
    seen = ran_out(OomFallback(planned=FOUR, rung=LOWEST), fruitless=0)
    step = next_step(attempt(RUNNING, trainer_errors=2), seen, NOW, PACE)

    assert step == replace(reopened(seen, after_error=False), rung=LOWEST)


def test_a_plan_that_does_not_say_how_much_at_once_has_no_ladder() -> None:
    seen = ran_out(OomFallback())

    assert next_step(attempt(RUNNING), seen, NOW, PACE) == reopened(seen, after_error=True)


def test_the_lowest_rung_has_none_below_it() -> None:
    assert next_rung(LOWEST) is None
