"""Divide a rendered text into segments: what is trained, what is only read, what is cut off.

Tokens decide, and characters are shown. A character that several tokens make up is shown as its
last one is: it is cut off unless all of it is kept.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rendering.template import Span

CONTEXT, TRAINED, CUT = "context", "trained", "cut"
_OVERHEAD = 50  # characters that a segment takes in JSON beside its text
_SHORTEST = 20  # characters of a segment's text, where it is shortened

Run = tuple[str, int, int]  # kind, start, end: characters of one kind


def runs(length: int, tokens: Iterable[tuple[str, Span]]) -> list[Run]:
    """Divide a text of ``length`` characters by the kinds of its tokens and their places in it.

    Characters that no token has (spaces, with some tokenizers) go with their neighbours if these
    are of one kind.
    """
    found: list[Run] = []
    for kind, (start, end) in tokens:
        if end <= start:
            continue
        _trim(found, start)
        at = found[-1][2] if found else 0
        if start > at:
            _add(found, _between(found, kind), at, start)
        _add(found, kind, start, end)
    at = found[-1][2] if found else 0
    if at < length:
        _add(found, CUT if found and found[-1][0] == CUT else CONTEXT, at, length)
    return found


def shortened(text: str, found: Sequence[Run], most: int) -> Iterator[dict[str, Any]]:
    """Yield segments with ``most`` characters in all; long ones lose their middle.

    ``omitted`` of a segment: characters that are left out after its text.
    """
    shown = found[: max(most // (_OVERHEAD + _SHORTEST), 1)]
    limits = _limits([end - start for _, start, end in shown], most - _OVERHEAD * len(shown))
    for (kind, start, end), limit in zip(shown, limits, strict=True):
        left_out = end - start - limit
        if left_out <= 0:
            yield {"kind": kind, "text": text[start:end]}
            continue
        tail = end - limit // 2
        yield {"kind": kind, "text": text[start : tail - left_out], "omitted": left_out}
        yield {"kind": kind, "text": text[tail:end]}
    if len(shown) < len(found):
        yield {"kind": CONTEXT, "text": "", "omitted": len(text) - shown[-1][2]}


def _trim(found: list[Run], start: int) -> None:
    """Leave out what lies at ``start`` or behind it."""
    while found and found[-1][1] >= start:
        found.pop()
    if found and found[-1][2] > start:
        kind, begin, _ = found.pop()
        found.append((kind, begin, start))


def _add(found: list[Run], kind: str, start: int, end: int) -> None:
    """Add characters, to the last run if it is of the same kind."""
    if found and found[-1][0] == kind:
        _, start, _ = found.pop()
    found.append((kind, start, end))


def _between(found: list[Run], following: str) -> str:
    """The kind of characters that no token has."""
    before = found[-1][0] if found else CONTEXT
    return before if before in (following, CUT) else CONTEXT


def _limits(lengths: Sequence[int], most: int) -> list[int]:
    """How much of each may be shown: short ones whole, long ones an equal share of the rest."""
    limits = list(lengths)
    for rank, number in enumerate(sorted(range(len(lengths)), key=lengths.__getitem__)):
        limits[number] = min(lengths[number], most // (len(lengths) - rank))
        most -= limits[number]
    return limits
