"""Which row is trained when: a pure function of the seed and one integer, the data cursor.

The cursor counts consumed samples, so it means the same for every world size.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


def row_at(seed: int, rows: int, cursor: int) -> int:
    """The row that the sample number ``cursor`` is; every epoch has an order of its own."""
    epoch, position = divmod(cursor, rows)
    return int(_permutation(seed, epoch, rows)[position])


def micro_steps(global_batch: int, micro_batch: int, world_size: int) -> int:
    """Micro-steps (gradient accumulation) that cover a global batch on this world."""
    return -(-global_batch // (micro_batch * world_size))


def cursors(
    consumed: int, global_batch: int, micro_batch: int, world_size: int, rank: int
) -> list[list[int]]:
    """Sample numbers of one rank in the next training step, one list per micro-step.

    The last micro-step is short, or empty on some ranks, where the global batch does not
    divide evenly: any world size trains exactly the same samples.
    """
    steps = []
    for micro in range(micro_steps(global_batch, micro_batch, world_size)):
        first = (micro * world_size + rank) * micro_batch
        last = min(first + micro_batch, global_batch)
        steps.append([consumed + i for i in range(first, last)])
    return steps


@lru_cache(maxsize=2)
def _permutation(seed: int, epoch: int, rows: int) -> NDArray[np.int64]:
    """A shuffle that stays the same across numpy's versions: only raw Philox bits are used."""
    bits = np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64))
    return np.argsort(bits.random_raw(rows), kind="stable")
