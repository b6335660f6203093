"""What a rank loads of a save: fragments of another world, and the random generators."""

import random
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.checkpoint import rng_state
from trainer.checkpoint.index import StoredPiece, plan_copies


@st.composite
def partitions(draw: st.DrawFn, size: int) -> list[tuple[int, int]]:
    """Draw a partition of ``size`` elements into (start, numel) parts."""
    cuts = sorted(draw(st.sets(st.integers(1, max(size - 1, 1)), max_size=6)))
    edges = [0, *(c for c in cuts if c < size), size]
    return [(a, b - a) for a, b in pairwise(edges)]


@given(st.data(), st.integers(1, 60))
def test_any_cut_of_a_parameter_loads_into_any_other_cut(data: st.DataObject, size: int) -> None:
    values = list(range(size))
    stored = data.draw(partitions(size))
    pieces = [StoredPiece(start, numel, rank) for rank, (start, numel) in enumerate(stored)]
    for start, numel in data.draw(partitions(size)):
        target = [-1] * numel
        for copy in plan_copies(start, numel, data.draw(st.permutations(pieces))):
            first, _ = stored[copy.rank]
            source = values[first + copy.source : first + copy.source + copy.numel]
            target[copy.target : copy.target + copy.numel] = source

        assert target == values[start : start + numel]


def test_replicas_are_read_once() -> None:
    pieces = [StoredPiece(0, 10, rank=0), StoredPiece(0, 10, rank=1)]

    assert [copy.rank for copy in plan_copies(2, 5, pieces)] == [0]


def test_a_gap_is_told_and_not_filled_from_what_lies_behind_it() -> None:
    pieces = [StoredPiece(0, 4, rank=0), StoredPiece(6, 4, rank=1)]

    with pytest.raises(ValueError, match="elements 4 to 10 are in no file"):
        plan_copies(0, 10, pieces)


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


def test_a_seed_draws_what_it_drew_yesterday() -> None:
    rng_state.seed_rng(1, 2, 3)

    of_torch, *draws = draw()
    assert of_torch == pytest.approx([0.6271212, 0.0230034, 0.7366656])
    assert draws == [0.17754431735171294, 0.9633871940611571]
    for parts in ((1, 2, 4), (1, 3, 3), (2, 2, 3)):
        rng_state.seed_rng(*parts)
        assert draw()[0] != of_torch
