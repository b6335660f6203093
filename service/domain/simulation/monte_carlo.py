"""Simulate a Spot job many times: cost and time at P10, P50 and P90. Pure.

Each run draws its own rates from their Gamma posteriors by age, so an interval is wide with
little data; then it draws holds and outages from those rates.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.domain.spot.age_hazard import HOLD_PRIOR, NO_EXPOSURE, OUTAGE_PRIOR, WIDTHS, Exposure

HOUR = 3600.0
_WEIGHT = 1.0  # ends that the prior counts for: wide, until something was seen
_LEAST = 1e-4  # per hour
_ENDLESS = 10_000  # evictions: such a job never ends


@dataclass(frozen=True, kw_only=True)
class SpotJob:
    """A job on Spot only, which waits whenever Spot has no capacity."""

    work_s: float
    cold_start_s: float
    lost_s: float = 0.0  # work that an eviction undoes
    hourly: float = 1.0  # dollars


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


@dataclass(frozen=True, kw_only=True)
class SpotRun:
    """One simulated run, from the first grant to the end of the work."""

    seconds: float
    dollars: float
    evictions: int


@dataclass(frozen=True, kw_only=True)
class RunDistribution:
    """Time, cost and evictions over all runs, counted from the first grant."""

    seconds: PercentileInterval
    dollars: PercentileInterval
    evictions: PercentileInterval


DrawHours = Callable[[], float]


def simulate_runs(
    job: SpotJob,
    draw: random.Random,
    *,
    lives: int,
    holds: Exposure = NO_EXPOSURE,
    droughts: Exposure = NO_EXPOSURE,
) -> RunDistribution:
    """Simulate this many runs with the observed exposure of holds and outages."""
    lived = [_draw_run(job, draw, holds, droughts) for _ in range(lives)]
    return RunDistribution(
        seconds=PercentileInterval.of([life.seconds for life in lived]),
        dollars=PercentileInterval.of([life.dollars for life in lived]),
        evictions=PercentileInterval.of([life.evictions for life in lived]),
    )


def simulate_run(job: SpotJob, hold: DrawHours, drought: DrawHours) -> SpotRun:
    """Simulate one run that begins with a hold; the callables draw hours."""
    left, seconds, billed = job.work_s, 0.0, 0.0
    for evictions in range(_ENDLESS):
        lasts = hold() * HOUR
        trains = max(0.0, lasts - job.cold_start_s)
        if trains >= left:
            end = job.cold_start_s + left
            return _spot_run(job, seconds + end, billed + end, evictions)
        left = min(job.work_s, left - trains + (job.lost_s if trains else 0.0))
        billed += lasts
        seconds += lasts + drought() * HOUR
    return _spot_run(job, math.inf, math.inf, _ENDLESS)


def draw_rates(seen: Exposure, prior: Sequence[float], draw: random.Random) -> tuple[float, ...]:
    """Draw rates by age, each from its Gamma posterior."""
    return tuple(
        max(draw.gammavariate(_WEIGHT + ends, 1 / (_WEIGHT / rate + hours)), _LEAST)
        for rate, ends, hours in zip(prior, seen.ends, seen.hours, strict=True)
    )


def draw_duration(rates: Sequence[float], draw: random.Random) -> float:
    """Draw the hours of one hold or outage at these rates."""
    age = 0.0
    for rate, width in zip(rates, WIDTHS, strict=True):
        more = draw.expovariate(rate)
        if more < width:
            return age + more
        age += width
    return age


def _draw_run(job: SpotJob, draw: random.Random, holds: Exposure, droughts: Exposure) -> SpotRun:
    up, down = draw_rates(holds, HOLD_PRIOR, draw), draw_rates(droughts, OUTAGE_PRIOR, draw)
    return simulate_run(job, lambda: draw_duration(up, draw), lambda: draw_duration(down, draw))


def _spot_run(job: SpotJob, seconds: float, billed: float, evictions: int) -> SpotRun:
    return SpotRun(seconds=seconds, dollars=job.hourly * billed / HOUR, evictions=evictions)


def _quantile(ordered: Sequence[float], share: float) -> float:
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    if math.isinf(ordered[high]):
        return ordered[high]
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])
