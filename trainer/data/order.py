"""The orders of rows: pure functions of the seed and the data cursor.

The cursor counts consumed samples, so it means the same for every world size.
"""

import logging
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.contract import Curriculum, Mix, micro_steps


def shuffled_row(seed: int, rows: int, cursor: int, stream: int = 0) -> int:
    """Return the row of sample number ``cursor``; every epoch has its own permutation.

    Different streams of one seed have independent orders.
    """
    epoch, position = divmod(cursor, rows)
    return int(_permutation(seed, epoch, rows, stream)[position])


def random_bits(seed: int, number: int, stream: int = 0) -> np.random.Philox:
    """Return a generator that depends on these arguments alone; seeds have at most 32 bits."""
    return np.random.Philox(key=np.array([seed + (stream << 32), number], dtype=np.uint64))


def micro_batch_samples(
    consumed: int, global_batch: int, micro_batch: int, world_size: int, rank: int
) -> list[list[int]]:
    """Return one rank's sample numbers in the next training step, one list per micro-step.

    Where the global batch does not divide evenly, the last micro-step is short, or empty on some
    ranks: any world size trains exactly the same samples.
    """
    steps = []
    for micro in range(micro_steps(global_batch, micro_batch, world_size)):
        first = (micro * world_size + rank) * micro_batch
        last = min(first + micro_batch, global_batch)
        steps.append([consumed + i for i in range(first, last)])
    return steps


@lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, rows: int, stream: int) -> NDArray[np.int64]:
    """Return a shuffle that is stable across numpy versions: only raw Philox bits are used."""
    return np.argsort(random_bits(seed, epoch, stream).random_raw(rows), kind="stable")


SHORT, LONG = 1, 2  # streams of random numbers; a plain shuffle has the first one, 0
_FINEST = 1_000_000  # largest denominator of a share: 0.7 is 7/10

log = logging.getLogger("trainer")


class LengthMixOrder:
    """Short and long rows in a constant proportion, in every step.

    The kind of each sample follows Bresenham's line algorithm: of the first n samples, floor(n *
    share) are short. Each kind has its own epochs, in which each row comes once; rows of the
    scarcer kind repeat more often.
    """

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


EASED = 3  # the curriculum's stream
_SPARSE = 4  # rows per draw, from which drawing is cheaper than shuffling


class CurriculumOrder:
    """Easy rows first: few turns, then few tokens.

    The first step draws from the easiest share of the rows only; the share grows linearly until all
    rows are allowed. Until then each step draws its rows anew, none twice unless there are too few.
    After that rows are shuffled, and each comes once in an epoch.
    """

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
        step, position = divmod(cursor, self._batch)
        if step >= self._curriculum.until_step:
            eased = self._curriculum.until_step * self._batch
            return shuffled_row(self._seed, len(self._easiest_first), cursor - eased)
        rank = _draw(self._seed, step, self.rows_allowed(step), self._batch)[position]
        return int(self._easiest_first[rank])

    def rows_allowed(self, step: int) -> int:
        """Return how many of the easiest rows are allowed once ``step`` steps are done."""
        rows, first = len(self._easiest_first), self._curriculum.start_share
        share = first + (1 - first) * min(step / self._curriculum.until_step, 1)
        return min(max(ceil(rows * share), 1), rows)


@lru_cache(maxsize=4)
def _draw(seed: int, step: int, allowed: int, batch: int) -> NDArray[np.int64]:
    """Draw ``batch`` numbers below ``allowed``, each as evenly often as possible."""
    random = random_bits(seed, step, EASED)
    if allowed > _SPARSE * batch:
        numbers: dict[int, None] = {}
        while len(numbers) < batch:
            numbers |= dict.fromkeys((random.random_raw(batch) % allowed).tolist())
        return np.array(list(numbers)[:batch], dtype=np.int64)
    rounds = [
        np.argsort(random.random_raw(allowed), kind="stable") for _ in range(-(-batch // allowed))
    ]
    return np.concatenate(rounds)[:batch]
