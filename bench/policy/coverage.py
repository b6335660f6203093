"""Coverage of the 80 % forecast intervals, on simulated jobs.

The simulated market does not follow the law that the forecasts assume. Holds (times with Spot
capacity) and outages (times without) are lognormal, with new parameters for each simulated world.
"""

import math
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from bench.policy.spot_runs import SpotJob, SpotRun, simulate_run, simulate_runs
from service.domain.placement.capacity_history import CapacityHistory
from service.domain.placement.capacity_outages import expected_aftermath
from service.domain.planning import forecast as live
from service.domain.spot.age_hazard import Exposure

JOB = SpotJob(work_s=24 * 3600, cold_start_s=720, lost_s=300)
_DAYS = 10  # days of history before a forecast
_SAMPLES = 100  # simulated runs per forecast


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Percentages of runs whose cost and whose time lie in their intervals."""

    dollars_pct: float
    seconds_pct: float


def coverage(lives: int, seed: int) -> Coverage:
    """Return the coverage of forecasts before the start, with one run per simulated world."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    dollars = seconds = 0
    for _ in range(lives):
        hold, outage = _lognormal_hours(rng, 1.5), _lognormal_hours(rng, 1.0)
        holds, past_outages = _history(hold, outage)
        forecast = simulate_runs(JOB, rng, lives=_SAMPLES, holds=holds, outages=past_outages)
        run: SpotRun = simulate_run(JOB, hold, outage)
        dollars += forecast.dollars.contains(run.dollars)
        seconds += forecast.seconds.contains(run.seconds)
    return Coverage(
        dollars_pct=round(100 * dollars / lives, 1), seconds_pct=round(100 * seconds / lives, 1)
    )


def _lognormal_hours(rng: random.Random, median_h: float) -> Callable[[], float]:
    """Return a generator of holds or outages in hours, with a random median and spread."""
    log_median = math.log(median_h) + rng.gauss(0, 0.7)
    spread = rng.uniform(0.8, 1.6)
    return lambda: rng.lognormvariate(log_median, spread)


def _history(hold: Callable[[], float], outage: Callable[[], float]) -> tuple[Exposure, Exposure]:
    """Return the holds and outages of ten days; the last one is censored."""
    remaining, holds, past_outages = _DAYS * 24.0, Exposure(), Exposure()
    while remaining > 0:
        up, down = hold(), outage()
        holds += Exposure.of([(min(up, remaining), up < remaining)])
        remaining -= up
        if remaining > 0:
            past_outages += Exposure.of([(min(down, remaining), down < remaining)])
            remaining -= down
    return holds, past_outages


def live_coverage(lives: int, seed: int) -> tuple[float, float]:
    """Return the coverage of the forecasts that a job's page shows during the run, in percent.

    The first value is the coverage of the remaining machine time. The second is that of the end,
    waits for capacity included. The simulated truth differs from the plan in eviction rates,
    recoveries, step times and the speed of each hold's machines.
    """
    rng = random.Random(seed)  # noqa: S311 - no secret
    covered = [_covers_outcome(rng) for _ in range(lives)]
    paid, ended = (round(100 * statistics.fmean(right), 1) for right in zip(*covered, strict=True))
    return paid, ended


def _covers_outcome(rng: random.Random) -> tuple[bool, bool]:
    job = _RunningJob(rng)
    job.live_until(rng.uniform(0.02, 0.9) * job.steps)
    observations, steps = job.observations(), round(job.steps - job.done)
    machine_time, end = (
        live.forecast_remaining(
            job.forecast_inputs,
            steps=steps,
            seconds_per_step=job.seconds_per_observed_step,
            running=True,
            progress=observations,
            after=after,
        )
        for after in (live.NO_WAIT, expected_aftermath(job.capacity_history, 1))
    )
    seconds_before, waited_before = job.seconds, job.waited
    job.live_until(job.steps)
    took = job.seconds - seconds_before
    return (
        machine_time.p10 <= took <= machine_time.p90,
        end.p10 <= took + job.waited - waited_before <= end.p90,
    )


class _RunningJob:
    """A running job: its simulated truth, and what it has shown of that so far."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.steps, self.step_s = rng, rng.randint(500, 5000), 30.0
        planned = math.exp(rng.uniform(math.log(0.02), math.log(0.5)))  # evictions per hour
        step_s = self.step_s * rng.uniform(0.7, 1.4)
        self.forecast_inputs = live.ForecastInputs(
            seconds_per_step=step_s,
            recovery_seconds=600.0,
            checkpoint_seconds=300.0,
            evictions_per_second=planned / 3600,
            answered=0.0,
            seconds_per_step_p10=0.75 * step_s,
            seconds_per_step_p90=1.25 * step_s,
            verify_seconds=0.0,
        )
        self.spread = rng.uniform(0.8, 1.6)
        mean_h = rng.lognormvariate(0, 0.5) / planned
        self.log_median = math.log(mean_h) - self.spread**2 / 2
        self.step_spread = rng.uniform(0.02, 0.5)  # relative standard deviation of step times
        self.done, self.seconds, self.evictions = 0.0, 0.0, 0
        self.waited = 0.0
        self.outage_probability = rng.uniform(0.3, 1.0)  # after an eviction
        self.outage = _lognormal_hours(rng, 1.0)
        self.capacity_history = self._draw_history()
        self._draw_hold()

    def _draw_hold(self) -> None:
        self.hold_remaining = self.rng.lognormvariate(self.log_median, self.spread) * 3600
        self.step_time_factor = self.rng.lognormvariate(0, 0.03)

    def _draw_history(self) -> CapacityHistory:
        """Return the capacity history that ten days of other jobs recorded."""
        hold = _lognormal_hours(self.rng, 1.5)
        _, past_outages = _history(hold, self.outage)
        evictions = round(sum(past_outages.ends) / self.outage_probability)
        return CapacityHistory(
            outages=past_outages, regrants=(evictions, evictions - sum(past_outages.ends))
        )

    def live_until(self, done: float) -> None:
        """Simulate training, evictions and recoveries until ``done`` steps are done."""
        while self.done < done:
            takes = (done - self.done) * self.step_s * self.step_time_factor
            takes *= max(self.rng.gauss(1, self.step_spread / math.sqrt(done - self.done)), 0.1)
            trains = min(takes, self.hold_remaining)
            self.done += (done - self.done) * trains / takes
            self.seconds += trains
            self.hold_remaining -= trains
            if trains < takes:
                lost_steps = (
                    self.rng.uniform(0, self.forecast_inputs.checkpoint_seconds) / self.step_s
                )
                self.done = max(self.done - lost_steps, 0.0)
                self.seconds += self.forecast_inputs.recovery_seconds * self.rng.lognormvariate(
                    -0.045, 0.3
                )
                self.evictions += 1
                if self.rng.random() < self.outage_probability:
                    self.waited += self.outage() * 3600
                self._draw_hold()

    def observations(self) -> live.ObservedProgress:
        """Return the observations so far: the last fifty step times, and the evictions."""
        sigma = math.sqrt(math.log(1 + self.step_spread**2))
        measured = sorted(
            self.step_s * self.step_time_factor * self.rng.lognormvariate(-(sigma**2) / 2, sigma)
            for _ in range(50)
        )
        self.seconds_per_observed_step = statistics.median(measured)
        return live.ObservedProgress(
            steps=len(measured),
            low=measured[5],
            high=measured[45],
            evictions=self.evictions,
            trained_s=self.seconds_per_observed_step * self.done,
        )
