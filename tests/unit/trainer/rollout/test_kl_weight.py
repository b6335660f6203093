"""The weight of the KL penalty over a run."""

from dataclasses import replace

import pytest

from tests.unit.trainer.process.trainer_spec import GRADED
from trainer.rollout.kl_schedule import kl_weight, next_kl_weight

FALLING = replace(GRADED, beta=0.01, beta_end=0.002)
STEERED = replace(GRADED, beta=0.1, kl_target=4.0)


def test_it_falls_along_half_a_cosine_to_its_floor() -> None:
    found = [kl_weight(FALLING, None, step, 11) for step in (1, 6, 11)]

    assert found == pytest.approx([0.01, 0.006, 0.002])


def test_without_an_end_it_stays() -> None:
    assert kl_weight(replace(GRADED, beta=0.3), None, 7, 11) == 0.3


def test_too_much_divergence_makes_it_dearer_and_too_little_cheaper() -> None:
    assert next_kl_weight(STEERED, 0.1, kl=4.4) == pytest.approx(0.1 * 1.01)
    assert next_kl_weight(STEERED, 0.1, kl=3.6) == pytest.approx(0.1 * 0.99)


def test_one_wild_step_moves_it_by_two_percent_at_most() -> None:
    assert next_kl_weight(STEERED, 0.1, kl=1000.0) == pytest.approx(0.1 * 1.02)
    assert next_kl_weight(STEERED, 0.1, kl=-1000.0) == pytest.approx(0.1 * 0.98)


def test_a_step_without_a_measure_leaves_it() -> None:
    assert next_kl_weight(STEERED, 0.25, kl=None) == 0.25


def test_what_is_not_steered_has_no_state() -> None:
    assert next_kl_weight(FALLING, 0.01, kl=9.0) is None
    assert kl_weight(STEERED, 0.25, 3, 11) == 0.25
