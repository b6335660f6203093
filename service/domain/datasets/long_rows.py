"""Record a file's longest rows, to compare them with any context later."""

import heapq
from dataclasses import dataclass, field
from typing import Final

MAX_ROWS: Final = 100

_CHARACTERS_PER_TOKEN = 3.5  # English has about four; fewer is the careful guess
_TOKENS_PER_EXAMPLE = 16  # the chat template's own

RowLength = tuple[int, int]  # line, tokens


def tokens_of(characters: int) -> int:
    """Return an estimate of the tokens of ``characters`` characters in a row, rather high."""
    return _TOKENS_PER_EXAMPLE + round(characters / _CHARACTERS_PER_TOKEN)


@dataclass
class LongRows:
    """The MAX_ROWS longest rows; of equal ones, the first."""

    _heap: list[tuple[int, int]] = field(default_factory=list)  # tokens, -line: shortest first

    def add(self, line: int, characters: int) -> int:
        """Record a row; return its tokens."""
        tokens = tokens_of(characters)
        if len(self._heap) < MAX_ROWS:
            heapq.heappush(self._heap, (tokens, -line))
        elif tokens > self._heap[0][0]:
            heapq.heapreplace(self._heap, (tokens, -line))
        return tokens

    def longest(self) -> tuple[RowLength, ...]:
        """Return the recorded rows, longest first."""
        return tuple((-line, tokens) for tokens, line in sorted(self._heap, reverse=True))
