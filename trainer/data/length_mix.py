"""Mix short and long rows in a constant proportion, in every step.

The kind of each sample follows Bresenham's line algorithm: of the first n samples, floor(n * share)
are short. Each kind has its own epochs, in which each row comes once; rows of the scarcer kind
repeat more often.
"""

import logging
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.contract import Mix
from trainer.data.order import shuffled_row

SHORT, LONG = 1, 2  # streams of random numbers; a plain shuffle has the first one, 0
_FINEST = 1_000_000  # largest denominator of a share: 0.7 is 7/10

log = logging.getLogger("trainer")


class LengthMixOrder:
    """The row of a sample is a pure function of seed, lengths and sample number."""

    def __init__(self, seed: int, tokens: NDArray[Any], mix: Mix) -> None:
        """Divide the rows by their ``tokens`` [rows]; rows of one kind only are shuffled."""
        self._seed, self._rows = seed, len(tokens)
        self._short = np.flatnonzero(tokens <= mix.threshold_tokens)
        self._long = np.flatnonzero(tokens > mix.threshold_tokens)
        self._share = Fraction(mix.short_share).limit_denominator(_FINEST)
        counts = (len(self._short), len(self._long), mix.threshold_tokens)
        log.info("%d short rows and %d long ones, of more than %d tokens", *counts)

    def row(self, cursor: int) -> int:
        """Return the row of sample number ``cursor``."""
        if not (len(self._short) and len(self._long)):
            return shuffled_row(self._seed, self._rows, cursor)
        before = self._shorts(cursor)
        if self._shorts(cursor + 1) > before:
            return int(self._short[shuffled_row(self._seed, len(self._short), before, SHORT)])
        return int(self._long[shuffled_row(self._seed, len(self._long), cursor - before, LONG)])

    def _shorts(self, samples: int) -> int:
        """Return how many of the first ``samples`` samples are short."""
        return samples * self._share.numerator // self._share.denominator
