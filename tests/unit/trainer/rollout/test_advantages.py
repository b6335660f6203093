"""Advantages, by hand and against the definitions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.rollout.advantages import (
    generalized_advantages,
    group_advantages,
    leave_one_out_advantages,
)

REWARDS = st.lists(st.floats(-10, 10), min_size=2, max_size=8)


def test_a_group_is_measured_in_deviations_from_its_mean() -> None:
    found = group_advantages([1.0, 0.0, 0.0, 1.0])

    deviation = math.sqrt(1 / 3)
    assert found == pytest.approx([0.5 / (deviation + 1e-4) * s for s in (1, -1, -1, 1)])


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
    told: list[tuple[float, float]], decay: float
) -> None:
    rewards, values = (np.array(column) for column in zip(*told, strict=True))
    after = [*values[1:], 0.0]
    surprises = [r + n - v for r, n, v in zip(rewards, after, values, strict=True)]
    by_hand = [
        sum(decay**k * d for k, d in enumerate(surprises[t:])) for t in range(len(surprises))
    ]
    assert generalized_advantages(rewards, values, decay) == pytest.approx(by_hand, abs=1e-8)
