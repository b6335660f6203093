"""How often to save. Standard library only; everybody imports it from `trainer/contract.py`.

The planner uses it with what it expects, the trainer again with what it has measured.
"""

import math
from dataclasses import dataclass

from trainer.wire import Message

BLOCK = 16 * 2**20  # bytes of a file that go to Blob at once
LEAST, MOST = 5.0, 3600.0  # seconds between two saves, whatever the formula says


@dataclass(frozen=True, kw_only=True)
class Cadence(Message):
    """What the best interval rests on, beside what a save costs."""

    evictions_per_hour: float  # of the whole job: any of its machines
    answered: float  # share of them whose notice leaves the time for a save
    seconds_per_block: float  # what Blob asks for a block, as time of the job's machines


def best_interval(cadence: Cadence, *, stall: float, upload: float, blocks: int) -> float:
    """Seconds of training between two saves that lose the least time and money.

    `T* = max(u - s, sqrt(2 (s + c) / (L (1 - p))))`: with p = u = c = 0 it is Young's and Daly's.
    A save stops training for ``stall`` (s), is on its way for ``upload`` (u) seconds, in which the
    next one is left out, and costs ``blocks`` blocks (c). Wrong by a factor of two it costs less
    than half a percent, so evictions may be a guess.
    """
    unanswered = cadence.evictions_per_hour / 3600 * (1 - cadence.answered)
    cost = stall + blocks * cadence.seconds_per_block
    best = math.sqrt(2 * cost / unanswered) if unanswered > 0 else MOST
    return min(max(best, upload - stall, LEAST), MOST)
