"""Short and long rows in one proportion all along: in every step, and not only in the mean.

Which sample is of which kind is a matter of arithmetic, as a line is drawn on a screen (Bresenham):
of the first n samples, n times the share are short, less what is less than one. Each kind has
epochs of its own, in which each of its rows comes once; so rows of the kind that is scarce for its
share come more often than the others.
"""

import logging
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.contract import Mix
from trainer.data.order import shuffled_row

SHORT, LONG = 1, 2  # streams of random numbers; a plain shuffle has the first one, 0
_FINEST = 1_000_000  # shares are taken to the nearest fraction of so many parts: 0.7 is 7/10

log = logging.getLogger("trainer")


class LengthMixOrder:
    """Pure: the row of a sample follows from seed, lengths and the sample's number."""

    def __init__(self, seed: int, tokens: NDArray[Any], mix: Mix) -> None:
        """``tokens`` of each row [rows]. With rows of one kind only, they are shuffled."""
        self._seed, self._rows = seed, len(tokens)
        self._short = np.flatnonzero(tokens <= mix.threshold_tokens)
        self._long = np.flatnonzero(tokens > mix.threshold_tokens)
        self._share = Fraction(mix.short_share).limit_denominator(_FINEST)
        counts = (len(self._short), len(self._long), mix.threshold_tokens)
        log.info("%d short rows and %d long ones, of more than %d tokens", *counts)

    def row(self, cursor: int) -> int:
        """The row that sample number ``cursor`` is."""
        if not (len(self._short) and len(self._long)):
            return shuffled_row(self._seed, self._rows, cursor)
        before = self._shorts(cursor)
        if self._shorts(cursor + 1) > before:
            return int(self._short[shuffled_row(self._seed, len(self._short), before, SHORT)])
        return int(self._long[shuffled_row(self._seed, len(self._long), cursor - before, LONG)])

    def _shorts(self, samples: int) -> int:
        """How many of the first ``samples`` are short."""
        return samples * self._share.numerator // self._share.denominator
