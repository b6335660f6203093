"""One job, the rules of its world, and how a life in it went. Times in ticks; money in what a tick
on demand costs."""

from collections.abc import Sequence
from dataclasses import dataclass

Weather = Sequence[Sequence[bool]]  # by zone and tick: a request would be granted


@dataclass(frozen=True, kw_only=True)
class World:
    """A job and what its machines cost."""

    work: int
    deadline: int
    cold: int
    lost: int
    ratio: float  # Spot price over on-demand price
    egress: float  # of a checkpoint to another region
    regions: tuple[str, ...]  # by zone; the checkpoint begins in the first
    tick_s: float


@dataclass(kw_only=True)
class Result:
    """What a life cost, and how it went."""

    cost: float = 0.0
    finished: int | None = None  # None: not before the weather ended
    spot: int = 0
    on_demand: int = 0
    evictions: int = 0
