"""Draw holds and outages of Spot capacity, and summarize runs at P10, P50 and P90. Pure.

Each run draws its own rates from their Gamma posteriors by age, so an interval is wide with
little data; then it draws holds and outages from those rates.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from service.domain.spot.age_hazard import WIDTHS, Exposure

_WEIGHT = 1.0  # ends that the prior counts for: wide, until something was seen
_LEAST = 1e-4  # per hour


@dataclass(frozen=True, kw_only=True)
class PercentileInterval:
    """The 80 % interval of a quantity, with its median."""

    p10: float
    p50: float
    p90: float

    def contains(self, value: float) -> bool:
        """Return whether a value lies in the interval."""
        return self.p10 <= value <= self.p90

    @classmethod
    def of(cls, values: Sequence[float]) -> "PercentileInterval":
        """Build from order statistics, interpolating between the two nearest.

        >>> PercentileInterval.of([float(n) for n in range(11)])
        PercentileInterval(p10=1.0, p50=5.0, p90=9.0)
        """
        ordered = sorted(values)
        p10, p50, p90 = (_quantile(ordered, q) for q in (0.1, 0.5, 0.9))
        return cls(p10=p10, p50=p50, p90=p90)


def draw_rates(
    exposure: Exposure, prior: Sequence[float], draw: random.Random
) -> tuple[float, ...]:
    """Draw rates by age, each from its Gamma posterior."""
    return tuple(
        max(draw.gammavariate(_WEIGHT + ends, 1 / (_WEIGHT / rate + hours)), _LEAST)
        for rate, ends, hours in zip(prior, exposure.ends, exposure.hours, strict=True)
    )


def draw_duration(rates: Sequence[float], draw: random.Random) -> float:
    """Draw the hours of one hold or outage at these rates."""
    age = 0.0
    for rate, width in zip(rates, WIDTHS, strict=True):
        hours = draw.expovariate(rate)
        if hours < width:
            return age + hours
        age += width
    return age


def _quantile(ordered: Sequence[float], share: float) -> float:
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    if math.isinf(ordered[high]):
        return ordered[high]
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])
