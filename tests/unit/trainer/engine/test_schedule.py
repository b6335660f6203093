"""The learning rate, step by step."""

from functools import partial

import pytest

from trainer.engine.lr_schedule import learning_rate

rate = partial(learning_rate, peak=1.0, warmup_steps=4, total_steps=12, min_ratio=0.1)


def test_the_rate_rises_in_a_line_to_the_peak() -> None:
    assert [rate(step) for step in (1, 2, 3, 4)] == [0.25, 0.5, 0.75, 1.0]


def test_the_rate_falls_along_a_cosine_to_its_floor() -> None:
    assert rate(8) == pytest.approx(0.55)
    assert rate(12) == pytest.approx(0.1)
    assert rate(6) > rate(7) > rate(8)


def test_without_warm_up_the_first_step_is_just_below_the_peak() -> None:
    assert 0.9 < learning_rate(1, peak=1, warmup_steps=0, total_steps=12, min_ratio=0) < 1


def test_a_run_of_warm_up_only_ends_at_the_peak() -> None:
    assert learning_rate(3, peak=2.0, warmup_steps=3, total_steps=3, min_ratio=0.1) == 2.0
