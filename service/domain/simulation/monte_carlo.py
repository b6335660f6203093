"""How a job may go, by living it many times: cost and time at P10, P50 and P90. Pure.

Each life draws its own rates from what is believed of them (Gamma posteriors by age), so an
interval is wide where little was seen, and then holds and droughts from those rates.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.domain.spot.age_hazard import DROUGHT_PRIOR, HOLD_PRIOR, NOTHING, WIDTHS, Ages

HOUR = 3600.0
_WEIGHT = 1.0  # ends that the prior counts for: wide, until something was seen
_LEAST = 1e-4  # per hour
_ENDLESS = 10_000  # evictions: such a job never ends


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job on Spot alone, which waits whenever there is none."""

    work_s: float
    cold_start_s: float
    lost_s: float = 0.0  # work that an eviction undoes
    hourly: float = 1.0  # dollars


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An 80 % interval with its middle."""

    p10: float
    p50: float
    p90: float

    def holds(self, value: float) -> bool:
        """Whether a value lies in it."""
        return self.p10 <= value <= self.p90

    @classmethod
    def of(cls, values: Sequence[float]) -> "Interval":
        """By order statistics, between the two nearest.

        >>> Interval.of([float(n) for n in range(11)])
        Interval(p10=1.0, p50=5.0, p90=9.0)
        """
        ordered = sorted(values)
        p10, p50, p90 = (_quantile(ordered, q) for q in (0.1, 0.5, 0.9))
        return cls(p10=p10, p50=p50, p90=p90)


@dataclass(frozen=True, kw_only=True)
class Lived:
    """One life, from the first grant to the end of the work."""

    seconds: float
    dollars: float
    evictions: int


@dataclass(frozen=True, kw_only=True)
class Odds:
    """What is to be expected, counted from the first grant."""

    seconds: Interval
    dollars: Interval
    evictions: Interval


Hours = Callable[[], float]


def forecast(
    job: Job, draw: random.Random, *, lives: int, holds: Ages = NOTHING, droughts: Ages = NOTHING
) -> Odds:
    """By so many lives in weather as it was seen: own holds, and droughts of the whole choice."""
    lived = [_in_weather_like(job, draw, holds, droughts) for _ in range(lives)]
    return Odds(
        seconds=Interval.of([life.seconds for life in lived]),
        dollars=Interval.of([life.dollars for life in lived]),
        evictions=Interval.of([life.evictions for life in lived]),
    )


def one_life(job: Job, hold: Hours, drought: Hours) -> Lived:
    """One life through holds and droughts as they come; it begins with a hold."""
    left, seconds, billed = job.work_s, 0.0, 0.0
    for evictions in range(_ENDLESS):
        lasts = hold() * HOUR
        trains = max(0.0, lasts - job.cold_start_s)
        if trains >= left:
            end = job.cold_start_s + left
            return _lived(job, seconds + end, billed + end, evictions)
        left = min(job.work_s, left - trains + (job.lost_s if trains else 0.0))
        billed += lasts
        seconds += lasts + drought() * HOUR
    return _lived(job, math.inf, math.inf, _ENDLESS)


def drawn(seen: Ages, prior: Sequence[float], draw: random.Random) -> tuple[float, ...]:
    """Rates by age, each from its Gamma posterior."""
    return tuple(
        max(draw.gammavariate(_WEIGHT + ends, 1 / (_WEIGHT / rate + hours)), _LEAST)
        for rate, ends, hours in zip(prior, seen.ends, seen.hours, strict=True)
    )


def lasts(rates: Sequence[float], draw: random.Random) -> float:
    """Hours of one hold or drought at these rates."""
    age = 0.0
    for rate, width in zip(rates, WIDTHS, strict=True):
        more = draw.expovariate(rate)
        if more < width:
            return age + more
        age += width
    return age


def _in_weather_like(job: Job, draw: random.Random, holds: Ages, droughts: Ages) -> Lived:
    up, down = drawn(holds, HOLD_PRIOR, draw), drawn(droughts, DROUGHT_PRIOR, draw)
    return one_life(job, lambda: lasts(up, draw), lambda: lasts(down, draw))


def _lived(job: Job, seconds: float, billed: float, evictions: int) -> Lived:
    return Lived(seconds=seconds, dollars=job.hourly * billed / HOUR, evictions=evictions)


def _quantile(ordered: Sequence[float], share: float) -> float:
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    if math.isinf(ordered[high]):
        return ordered[high]
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])
