"""How often to save. Standard library only; everybody imports it from `trainer/contract.py`.

The planner uses it with what it expects, the trainer again with what it has measured and with what
the service tells it meanwhile.
"""

import math
from dataclasses import dataclass, field

from trainer.bounds import Int, Seconds
from trainer.wire import LATER, Message

BLOCK = 16 * 2**20  # bytes of a file that go to Blob at once
LEAST, MOST = 5.0, 3600.0  # seconds between two saves, whatever the formula says
BLIND = 300.0  # the same, where evictions begin to count and no save was measured


@dataclass(frozen=True, kw_only=True)
class Cadence(Message):
    """What the best interval rests on, beside what a save costs."""

    evictions_per_hour: float  # of the whole job: any of its machines
    answered: float  # share of them whose notice leaves the time for a save
    seconds_per_block: float  # what Blob asks for a block, as time of the job's machines

    @property
    def unanswered_per_hour(self) -> float:
        """Evictions that lose what is not saved."""
        return self.evictions_per_hour * (1 - self.answered)


@dataclass(frozen=True, kw_only=True)
class SaveCost(Message):
    """What the last save has cost."""

    stall: Seconds  # seconds that training stood still
    upload: Seconds  # seconds until it was committed
    blocks: Int


@dataclass(frozen=True, kw_only=True)
class Saving(Message):
    """How often rank 0 saves now."""

    every: Seconds
    cost: SaveCost | None = field(default=None, metadata=LATER)  # None: no save was measured yet


def best_interval(cadence: Cadence, *, stall: float, upload: float, blocks: int) -> float:
    """Seconds of training between two saves that lose the least time and money.

    `T* = max(u - s, sqrt(2 (s + c) / (L (1 - p))))`: with p = u = c = 0 it is Young's and Daly's.
    A save stops training for ``stall`` (s), is on its way for ``upload`` (u) seconds, in which the
    next one is left out, and costs ``blocks`` blocks (c). Wrong by a factor of two it costs less
    than half a percent, so evictions may be a guess.
    """
    unanswered = cadence.unanswered_per_hour / 3600
    cost = stall + blocks * cadence.seconds_per_block
    best = math.sqrt(2 * cost / unanswered) if unanswered > 0 else MOST
    return min(max(best, upload - stall, LEAST), MOST)


def interval_of(cadence: Cadence, cost: SaveCost) -> float:
    """The best interval with what a save was measured to cost."""
    return best_interval(cadence, stall=cost.stall, upload=cost.upload, blocks=cost.blocks)


def rescaled(every: float, before: Cadence, now: Cadence) -> float:
    """The interval when evictions become others and no save was measured: it goes by their root."""
    if now.unanswered_per_hour <= 0:
        return MOST
    if before.unanswered_per_hour <= 0:
        return min(every, BLIND)
    best = every * math.sqrt(before.unanswered_per_hour / now.unanswered_per_hour)
    return min(max(best, LEAST), MOST)
