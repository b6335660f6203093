"""Fragments stored by one world cover what another world needs."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

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
