"""The order of rows: a pure function of the seed and the data cursor.

The cursor counts consumed samples, so it means the same for every world size.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from trainer.contract import micro_steps


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
