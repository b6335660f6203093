"""Easy rows first: of few turns, and among those of few tokens.

In the first step only the easiest share of the rows may come; from step to step as many more, until
all may. So long, a step draws its rows from those afresh, none twice unless there are too few. From
then on rows are shuffled, and each comes once in an epoch.
"""

from functools import lru_cache
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.contract import Curriculum
from trainer.data.order import random_bits, shuffled_row

STREAM = 3  # stream of random numbers; those of mix.py are others
_SPARSE = 4  # rows for each that is drawn, from which on it pays to draw instead of shuffling


class CurriculumOrder:
    """Pure: the row of a sample follows from seed, rows, batch and the sample's number."""

    def __init__(
        self,
        seed: int,
        turns: NDArray[Any],
        tokens: NDArray[Any],
        curriculum: Curriculum,
        global_batch: int,
    ) -> None:
        """``turns`` and ``tokens`` of each row [rows]; of equal rows the first is the easier."""
        self._seed, self._curriculum, self._batch = seed, curriculum, global_batch
        self._easiest_first = np.lexsort((tokens, turns))

    def row(self, cursor: int) -> int:
        """The row that sample number ``cursor`` is."""
        step, place = divmod(cursor, self._batch)
        if step >= self._curriculum.until_step:
            eased = self._curriculum.until_step * self._batch
            return shuffled_row(self._seed, len(self._easiest_first), cursor - eased)
        rank = _draw(self._seed, step, self.allowed(step), self._batch)[place]
        return int(self._easiest_first[rank])

    def allowed(self, step: int) -> int:
        """How many rows, the easiest, may come once ``step`` steps are done."""
        rows, first = len(self._easiest_first), self._curriculum.start_share
        share = first + (1 - first) * min(step / self._curriculum.until_step, 1)
        return min(max(ceil(rows * share), 1), rows)


@lru_cache(maxsize=4)
def _draw(seed: int, step: int, allowed: int, batch: int) -> NDArray[np.int64]:
    """``batch`` numbers below ``allowed``, none more often than it must be."""
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
