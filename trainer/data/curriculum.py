"""Order rows by difficulty: few turns first, then few tokens.

The first step draws from the easiest share of the rows only; the share grows linearly until all
rows are allowed. Until then each step draws its rows anew, none twice unless there are too few.
After that rows are shuffled, and each comes once in an epoch.
"""

from functools import lru_cache
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.contract import Curriculum
from trainer.data.order import random_bits, shuffled_row

STREAM = 3  # random stream; length_mix.py uses others
_SPARSE = 4  # rows per draw, from which drawing is cheaper than shuffling


class CurriculumOrder:
    """The row of a sample is a pure function of seed, rows, batch and sample number."""

    def __init__(
        self,
        seed: int,
        turns: NDArray[Any],
        tokens: NDArray[Any],
        curriculum: Curriculum,
        global_batch: int,
    ) -> None:
        """Sort the rows by difficulty.

        Args:
            turns: Messages of each row [rows].
            tokens: Tokens of each row [rows]; of equal rows the first is the easier.
        """
        self._seed, self._curriculum, self._batch = seed, curriculum, global_batch
        self._easiest_first = np.lexsort((tokens, turns))

    def row(self, cursor: int) -> int:
        """Return the row of sample number ``cursor``."""
        step, place = divmod(cursor, self._batch)
        if step >= self._curriculum.until_step:
            eased = self._curriculum.until_step * self._batch
            return shuffled_row(self._seed, len(self._easiest_first), cursor - eased)
        rank = _draw(self._seed, step, self.rows_allowed(step), self._batch)[place]
        return int(self._easiest_first[rank])

    def rows_allowed(self, step: int) -> int:
        """Return how many of the easiest rows are allowed once ``step`` steps are done."""
        rows, first = len(self._easiest_first), self._curriculum.start_share
        share = first + (1 - first) * min(step / self._curriculum.until_step, 1)
        return min(max(ceil(rows * share), 1), rows)


@lru_cache(maxsize=4)
def _draw(seed: int, step: int, allowed: int, batch: int) -> NDArray[np.int64]:
    """Draw ``batch`` numbers below ``allowed``, each as evenly often as possible."""
    random = random_bits(seed, step, STREAM)
    if allowed > _SPARSE * batch:
        found: dict[int, None] = {}
        while len(found) < batch:
            found |= dict.fromkeys((random.random_raw(batch) % allowed).tolist())
        return np.array(list(found)[:batch], dtype=np.int64)
    rounds = [
        np.argsort(random.random_raw(allowed), kind="stable") for _ in range(-(-batch // allowed))
    ]
    return np.concatenate(rounds)[:batch]
