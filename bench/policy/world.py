"""Parameters of one simulated job, and its result.

Times are in ticks. Money is in the price of one on-demand tick.
"""

from collections.abc import Sequence
from dataclasses import dataclass

Capacity = Sequence[Sequence[bool]]  # by zone and tick: whether a request would be granted


@dataclass(frozen=True, kw_only=True)
class ReplayWorld:
    """A job and the prices of its machines."""

    work: int
    deadline: int
    cold: int
    lost: int
    ratio: float  # Spot price over on-demand price
    egress: float  # cost to move a checkpoint to another region
    regions: tuple[str, ...]  # by zone; the checkpoint starts in the first region
    tick_s: float


@dataclass(kw_only=True)
class Result:
    """Cost and course of one run."""

    cost: float = 0.0
    finished: int | None = None  # tick of the end; None: unfinished when the trace ended
    spot: int = 0
    on_demand: int = 0
    evictions: int = 0
