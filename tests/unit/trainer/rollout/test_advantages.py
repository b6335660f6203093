"""Advantages, by hand and against the definitions; the weight of the KL penalty over a run."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.trainer.process.trainer_spec import GRADED
from trainer.rollout.advantages import (
    generalized_advantages,
    group_advantages,
    leave_one_out_advantages,
)
from trainer.rollout.kl_schedule import kl_weight, next_kl_weight

REWARDS = st.lists(st.floats(-10, 10), min_size=2, max_size=8)


def test_a_group_is_measured_in_deviations_from_its_mean() -> None:
    advantages = group_advantages([1.0, 0.0, 0.0, 1.0])

    deviation = math.sqrt(1 / 3)
    assert advantages == pytest.approx([0.5 / (deviation + 1e-4) * s for s in (1, -1, -1, 1)])


def test_answers_that_are_all_alike_teach_nothing() -> None:
    assert group_advantages([0.7, 0.7, 0.7]) == pytest.approx([0, 0, 0], abs=1e-9)
    assert leave_one_out_advantages([0.7, 0.7]) == pytest.approx([0, 0], abs=1e-9)


@given(REWARDS)
def test_leaving_one_out_compares_with_the_mean_of_the_others(rewards: list[float]) -> None:
    by_hand = [
        r - sum(rewards[:n] + rewards[n + 1 :]) / (len(rewards) - 1) for n, r in enumerate(rewards)
    ]
    assert leave_one_out_advantages(rewards) == pytest.approx(by_hand, abs=1e-9)


@given(
    st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=12),
    st.floats(0, 1),
)
def test_generalized_advantages_are_the_sum_over_all_later_surprises(
    steps: list[tuple[float, float]], decay: float
) -> None:
    rewards, values = (np.array(column) for column in zip(*steps, strict=True))
    after = [*values[1:], 0.0]
    surprises = [r + n - v for r, n, v in zip(rewards, after, values, strict=True)]
    by_hand = [
        sum(decay**k * d for k, d in enumerate(surprises[t:])) for t in range(len(surprises))
    ]
    assert generalized_advantages(rewards, values, decay) == pytest.approx(by_hand, abs=1e-8)


FALLING = replace(GRADED, beta=0.01, beta_end=0.002)
STEERED = replace(GRADED, beta=0.1, kl_target=4.0)


def test_it_falls_along_half_a_cosine_to_its_floor() -> None:
    weights = [kl_weight(FALLING, None, step, 11) for step in (1, 6, 11)]

    assert weights == pytest.approx([0.01, 0.006, 0.002])


def test_too_much_divergence_makes_it_dearer_and_too_little_cheaper() -> None:
    assert next_kl_weight(STEERED, 0.1, kl=4.4) == pytest.approx(0.1 * 1.01)
    assert next_kl_weight(STEERED, 0.1, kl=3.6) == pytest.approx(0.1 * 0.99)


def test_one_wild_step_moves_it_by_two_percent_at_most() -> None:
    assert next_kl_weight(STEERED, 0.1, kl=1000.0) == pytest.approx(0.1 * 1.02)
    assert next_kl_weight(STEERED, 0.1, kl=-1000.0) == pytest.approx(0.1 * 0.98)
    assert next_kl_weight(STEERED, 0.25, kl=None) == 0.25


def test_what_is_not_steered_has_no_state() -> None:
    assert next_kl_weight(FALLING, 0.01, kl=9.0) is None
    assert kl_weight(replace(GRADED, beta=0.3), None, 7, 11) == 0.3
    assert kl_weight(STEERED, 0.25, 3, 11) == 0.25
