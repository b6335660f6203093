"""Compute, in closed form, the goodput and the interval of checkpoints that is best for it.

Goodput is the share of paid time that is durable training. Between recoveries a job runs for an
exponential time. It trains for ``interval`` seconds, stops for ``stall`` to take a copy, and
continues while the copy is uploaded. An eviction with an answered notice loses nothing; any other
one loses what is not uploaded. Exact for Poisson evictions; the benchmark checks it against a
simulation. The service uses the first-order interval (`checkpoint_interval.best_interval`), which
needs no search and no recovery time.
"""

import math
from dataclasses import dataclass

_SEARCHED = 200  # halvings of the golden section; the interval is then exact to a part in a million
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, kw_only=True)
class EvictionModel:
    """Eviction figures of a job; times in seconds."""

    evictions_per_second: float  # of the whole job: any of its machines
    answered: float  # share of them whose notice leaves the time for a save
    recovery: float  # paid for, from an eviction to the next training step
    notice: float = 0.0  # in which nothing is trained, paid for as well


@dataclass(frozen=True, kw_only=True)
class SaveTimes:
    """The cost of a save in seconds."""

    stall: float
    upload: float


def goodput(interval: float, save: SaveTimes, hazard: EvictionModel) -> float:
    """Return the share of the paid time that ends up as durable training.

    `G(T) = (p A + (1 - p) B) / (1/L + e + R)`, `A = (1 - exp(-L T)) / (L (1 - exp(-L P)))`, `B = T
    exp(-L u) / (exp(L P) - 1)`, `P = T + s`.
    """
    rate, period = hazard.evictions_per_second, interval + save.stall
    if rate <= 0:
        return interval / period
    noticed = -math.expm1(-rate * interval) / (rate * -math.expm1(-rate * period))
    durable = interval * math.exp(-rate * save.upload) / math.expm1(rate * period)
    durable_seconds = hazard.answered * noticed + (1 - hazard.answered) * durable
    return durable_seconds / (1 / rate + hazard.notice + hazard.recovery)


def optimal_interval(save: SaveTimes, hazard: EvictionModel, *, least: float, most: float) -> float:
    """Return the interval of the greatest goodput; no shorter than an upload."""
    low = math.log(max(least, save.upload - save.stall))
    high = max(math.log(most), low)
    for _ in range(_SEARCHED):
        if high - low < 1e-6:
            break
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        if goodput(math.exp(left), save, hazard) < goodput(math.exp(right), save, hazard):
            low = left
        else:
            high = right
    return math.exp((low + high) / 2)
