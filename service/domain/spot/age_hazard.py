"""Estimate hazard rates by age from exposure and events, for Spot holds and capacity outages.

Spot lifetimes have heavy tails: what has lasted long is likely to last longer. One rate per age
bucket models that, and each stays a Gamma-Poisson estimate: events over hours, with a prior of a
few pseudo-events.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

EDGES = (0.5, 2.0, 8.0)  # hours: where one bucket ends and the next begins
BUCKETS = len(EDGES) + 1
WIDTHS = (0.5, 1.5, 6.0, math.inf)  # hours that a bucket lasts
_STARTS = (0.0, *EDGES)

# Events per hour by age, of all lifetimes alike: they fall about as 1/age in every public trace
# (docs/planning.md). One set serves holds, the other outages.
HOLD_PRIOR = (1.2, 0.6, 0.18, 0.06)
OUTAGE_PRIOR = (1.1, 0.75, 0.22, 0.07)


@dataclass(frozen=True)
class Exposure:
    """Hours observed and ends observed, by age bucket.

    Ends may be fewer than lives: some lives were censored.
    """

    hours: tuple[float, ...] = (0.0,) * BUCKETS
    ends: tuple[int, ...] = (0,) * BUCKETS

    def __add__(self, other: Self) -> "Exposure":
        """Add the hours and ends of both."""
        return Exposure(
            tuple(a + b for a, b in zip(self.hours, other.hours, strict=True)),
            tuple(a + b for a, b in zip(self.ends, other.ends, strict=True)),
        )

    @classmethod
    def of(cls, lifetimes: Iterable[tuple[float, bool]], start_age: float = 0.0) -> Self:
        """Build from lives as (hours, whether it ended by itself).

        False: censored, because we cut it or it still lasts. ``start_age``: the hours that each had
        lasted when observation began; the time before counts as not observed.
        """
        hours, ends = [0.0] * BUCKETS, [0] * BUCKETS
        for duration, ended in lifetimes:
            age = start_age + duration
            for b, (start, width) in enumerate(zip(_STARTS, WIDTHS, strict=True)):
                hours[b] += max(0.0, min(age, start + width) - max(start_age, start))
            ends[bucket_of(age)] += ended
        return cls(tuple(hours), tuple(ends))

    def rates(self, prior: tuple[float, ...], weight: float) -> tuple[float, ...]:
        """Return ends per hour by bucket: Gamma posterior means.

        The prior counts ``weight`` ends in each bucket.

        >>> Exposure((10.0, 0.0, 0.0, 0.0), (4, 0, 0, 0)).rates((1.0, 0.5, 0.2, 0.1), 2.0)
        (0.5, 0.5, 0.2, 0.1)
        """
        return tuple(
            (weight + count) / (weight / before + hours)
            for before, count, hours in zip(prior, self.ends, self.hours, strict=True)
        )


NO_EXPOSURE = Exposure()


def bucket_of(hours: float) -> int:
    """Return the bucket of an age in hours; an age on an edge belongs to the bucket below it."""
    return sum(hours > edge for edge in EDGES)


def mean_residual_life(rates: tuple[float, ...], age: float, horizon: float) -> float:
    """Return the expected hours still to live at ``age``, capped at ``horizon`` hours."""
    expected, alive, at = 0.0, 1.0, age
    end = age + horizon
    for b in range(bucket_of(age), BUCKETS):
        until = min(end, _STARTS[b] + WIDTHS[b])
        expected += alive * -math.expm1(-rates[b] * (until - at)) / rates[b]
        alive *= math.exp(-rates[b] * (until - at))
        at = until
        if at >= end:
            break
    return expected


def residual_life_quantile(rates: tuple[float, ...], age: float, share: float) -> float:
    """Return the hours from now until ``share`` of the holds of this age have ended.

    >>> round(residual_life_quantile((0.5, 0.5, 0.1, 0.1), 1.0, 1 - math.exp(-1.0)), 6)
    6.0
    """
    remaining, at = -math.log1p(-share), age
    for b in range(bucket_of(age), BUCKETS - 1):
        until = _STARTS[b] + WIDTHS[b]
        if (spent := rates[b] * (until - at)) >= remaining:
            return at + remaining / rates[b] - age
        remaining, at = remaining - spent, until
    return at + remaining / rates[-1] - age
