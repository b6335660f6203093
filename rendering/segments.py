"""Divide a rendered text into trained, context and cut-off segments.

Tokens determine the kind, characters are shown. A character of several tokens has the kind of the
last one: it is cut off unless all of it is kept.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rendering.templates.chat_template import Span

CONTEXT, TRAINED, CUT = "context", "trained", "cut"
_OVERHEAD = 50  # JSON characters of a segment besides its text
_SHORTEST = 20  # least characters of a shortened segment

Run = tuple[str, int, int]  # kind, start, end: characters of one kind


def find_runs(length: int, tokens: Iterable[tuple[str, Span]]) -> list[Run]:
    """Return runs of characters by the kinds and spans of their tokens.

    Characters without a token (spaces, with some tokenizers) take the kind of their neighbours if
    both are equal.
    """
    runs: list[Run] = []
    for kind, (start, end) in tokens:
        if end <= start:
            continue
        _trim_runs(runs, start)
        at = runs[-1][2] if runs else 0
        if start > at:
            _add_run(runs, _gap_kind(runs, kind), at, start)
        _add_run(runs, kind, start, end)
    at = runs[-1][2] if runs else 0
    if at < length:
        _add_run(runs, CUT if runs and runs[-1][0] == CUT else CONTEXT, at, length)
    return runs


def shorten_segments(text: str, runs: Sequence[Run], most: int) -> Iterator[dict[str, Any]]:
    """Yield segments with ``most`` characters in total; long ones lose their middle.

    ``omitted`` is the number of characters left out after a segment's text.
    """
    visible = runs[: max(most // (_OVERHEAD + _SHORTEST), 1)]
    limits = _share_characters(
        [end - start for _, start, end in visible], most - _OVERHEAD * len(visible)
    )
    for (kind, start, end), limit in zip(visible, limits, strict=True):
        left_out = end - start - limit
        if left_out <= 0:
            yield {"kind": kind, "text": text[start:end]}
            continue
        tail = end - limit // 2
        yield {"kind": kind, "text": text[start : tail - left_out], "omitted": left_out}
        yield {"kind": kind, "text": text[tail:end]}
    if len(visible) < len(runs):
        yield {"kind": CONTEXT, "text": "", "omitted": len(text) - visible[-1][2]}


def _trim_runs(runs: list[Run], start: int) -> None:
    """Remove what begins at ``start`` or later."""
    while runs and runs[-1][1] >= start:
        runs.pop()
    if runs and runs[-1][2] > start:
        kind, begin, _ = runs.pop()
        runs.append((kind, begin, start))


def _add_run(runs: list[Run], kind: str, start: int, end: int) -> None:
    """Add characters, to the last run if it has the same kind."""
    if runs and runs[-1][0] == kind:
        _, start, _ = runs.pop()
    runs.append((kind, start, end))


def _gap_kind(runs: list[Run], following: str) -> str:
    """Return the kind of characters without a token."""
    before = runs[-1][0] if runs else CONTEXT
    return before if before in (following, CUT) else CONTEXT


def _share_characters(lengths: Sequence[int], most: int) -> list[int]:
    """Return shown characters per segment: short ones whole, long ones share the rest equally."""
    limits = list(lengths)
    for rank, number in enumerate(sorted(range(len(lengths)), key=lengths.__getitem__)):
        limits[number] = min(lengths[number], most // (len(lengths) - rank))
        most -= limits[number]
    return limits
