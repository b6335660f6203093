"""The random generators in a save."""

import random

import numpy as np
import pytest
import torch

from trainer.checkpoint import rng_state


def draw() -> tuple[list[float], float, float]:
    return torch.rand(3).tolist(), random.random(), float(np.random.rand())


def test_generators_go_on_where_they_were_captured() -> None:
    rng_state.seed_rng(1, 2, 3)
    draw()
    state = rng_state.RngState.from_json(rng_state.capture_rng().to_json())
    first = draw()
    rng_state.seed_rng(9)

    rng_state.restore_rng(state)

    assert draw() == first


def test_seeds_differ_by_every_part() -> None:
    drawn = []
    for parts in ((1, 2, 3), (1, 2, 4), (1, 3, 3), (2, 2, 3)):
        rng_state.seed_rng(*parts)
        drawn.append(draw())

    assert len({str(d) for d in drawn}) == 4


def test_a_seed_draws_what_it_drew_yesterday() -> None:
    rng_state.seed_rng(1, 2, 3)

    of_torch, *others = draw()
    assert of_torch == pytest.approx([0.6271212, 0.0230034, 0.7366656])
    assert others == [0.17754431735171294, 0.9633871940611571]
