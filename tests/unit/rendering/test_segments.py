"""Texts divided by their tokens: every character once, in order, of one kind."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rendering.segments import CONTEXT, CUT, TRAINED, Run, find_runs, shorten_segments

C, T, X = CONTEXT, TRAINED, CUT


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([], [(C, 0, 6)]),
        ([(C, (0, 3)), (C, (3, 4)), (T, (4, 6))], [(C, 0, 4), (T, 4, 6)]),
        ([(T, (0, 2)), (X, (2, 6))], [(T, 0, 2), (X, 2, 6)]),
    ],
)
def test_neighbours_of_one_kind_are_one_run(
    tokens: list[tuple[str, tuple[int, int]]], expected: list[Run]
) -> None:
    assert find_runs(6, tokens) == expected


def test_characters_without_a_whole_token_go_with_their_neighbours_or_are_cut() -> None:
    """As with BERT's tokenizer."""
    tokens = [(T, (0, 1)), (T, (1, 2)), (T, (1, 2)), (X, (1, 2)), (X, (2, 3))]

    assert find_runs(3, tokens) == [(T, 0, 1), (X, 1, 3)]

    tokens = [(C, (0, 2)), (T, (3, 5)), (T, (6, 8)), (C, (9, 10)), (X, (11, 12))]

    assert find_runs(13, tokens) == [(C, 0, 3), (T, 3, 8), (C, 8, 11), (X, 11, 13)]

    assert find_runs(2, [(C, (0, 1)), (T, (0, 0)), (C, (1, 2)), (T, (2, 2))]) == [(C, 0, 2)]


def test_short_segments_stay_whole_beside_long_ones() -> None:
    text = "c" * 5000 + "t" * 30 + "x" * 5000
    runs = [(C, 0, 5000), (T, 5000, 5030), (X, 5030, 10_030)]
    segments = list(shorten_segments(text, runs, 1000))

    assert {"kind": T, "text": "t" * 30} in segments
    assert [s["kind"] for s in segments] == [C, C, T, X, X]
    assert sum(s.get("omitted", 0) + len(s["text"]) for s in segments) == len(text)
    assert sum(len(s["text"]) for s in segments) <= 1000


def test_of_too_many_segments_the_first_are_shown() -> None:
    runs = [(T if n % 2 else C, n, n + 1) for n in range(10_000)]
    segments = list(shorten_segments("ab" * 5000, runs, 7000))

    assert len(segments) == 101
    assert segments[-1] == {"kind": C, "text": "", "omitted": 9900}


@given(
    st.lists(st.tuples(st.sampled_from([C, T]), st.integers(0, 3), st.integers(0, 4))),
    st.integers(0, 40),
    st.integers(200, 400),
)
def test_every_character_is_shown_or_counted_once(
    steps: list[tuple[str, int, int]], kept_tokens: int, most: int
) -> None:
    """Tokens overlap the last one by a character at times, and leave some out."""
    at, tokens = 0, []
    for number, (kind, gap, length) in enumerate(steps):
        start = max(at + gap - 1, 0)
        at = start + length
        tokens.append((kind if number < kept_tokens else X, (start, at)))
    text = "".join(chr(97 + n % 26) for n in range(at + 2))
    runs = find_runs(len(text), tokens)

    positions = [position for _, start, end in runs for position in range(start, end)]
    assert positions == list(range(len(text)))
    assert all(a[0] != b[0] for a, b in pairwise(runs))
    segments = list(shorten_segments(text, runs, most))
    assert sum(len(s["text"]) + s.get("omitted", 0) for s in segments) == len(text)
