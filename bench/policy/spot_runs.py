"""Simulate a job on Spot only from drawn holds and outages, without a placement policy.

The service simulates in ticks with its policy; that takes a thousand times as long.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from service.domain.simulation.monte_carlo import PercentileInterval, draw_duration, draw_rates
from service.domain.spot.age_hazard import HOLD_PRIOR, NO_EXPOSURE, OUTAGE_PRIOR, Exposure

HOUR = 3600.0
_ENDLESS = 10_000  # evictions: such a job never ends


@dataclass(frozen=True, kw_only=True)
class SpotJob:
    """A job on Spot only, which waits whenever Spot has no capacity."""

    work_s: float
    cold_start_s: float
    lost_s: float = 0.0  # work that an eviction undoes
    hourly: float = 1.0  # dollars


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
    rng: random.Random,
    *,
    lives: int,
    holds: Exposure = NO_EXPOSURE,
    outages: Exposure = NO_EXPOSURE,
) -> RunDistribution:
    """Simulate this many runs with the observed exposure of holds and outages."""
    runs = [_draw_run(job, rng, holds, outages) for _ in range(lives)]
    return RunDistribution(
        seconds=PercentileInterval.of([run.seconds for run in runs]),
        dollars=PercentileInterval.of([run.dollars for run in runs]),
        evictions=PercentileInterval.of([run.evictions for run in runs]),
    )


def simulate_run(job: SpotJob, hold: DrawHours, outage: DrawHours) -> SpotRun:
    """Simulate one run that begins with a hold; the callables draw hours."""
    remaining, seconds, billed = job.work_s, 0.0, 0.0
    for evictions in range(_ENDLESS):
        lasts = hold() * HOUR
        trains = max(0.0, lasts - job.cold_start_s)
        if trains >= remaining:
            end = job.cold_start_s + remaining
            return _spot_run(job, seconds + end, billed + end, evictions)
        remaining = min(job.work_s, remaining - trains + (job.lost_s if trains else 0.0))
        billed += lasts
        seconds += lasts + outage() * HOUR
    return _spot_run(job, math.inf, math.inf, _ENDLESS)


def _draw_run(job: SpotJob, rng: random.Random, holds: Exposure, outages: Exposure) -> SpotRun:
    up, down = draw_rates(holds, HOLD_PRIOR, rng), draw_rates(outages, OUTAGE_PRIOR, rng)
    return simulate_run(job, lambda: draw_duration(up, rng), lambda: draw_duration(down, rng))


def _spot_run(job: SpotJob, seconds: float, billed: float, evictions: int) -> SpotRun:
    return SpotRun(seconds=seconds, dollars=job.hourly * billed / HOUR, evictions=evictions)
