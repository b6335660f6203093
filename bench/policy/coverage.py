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
    draw = random.Random(seed)  # noqa: S311 - no secret
    dollars = seconds = 0
    for _ in range(lives):
        hold, outage = _law(draw, 1.5), _law(draw, 1.0)
        holds, past_outages = _history(hold, outage)
        odds = simulate_runs(JOB, draw, lives=_SAMPLES, holds=holds, outages=past_outages)
        life: SpotRun = simulate_run(JOB, hold, outage)
        dollars += odds.dollars.contains(life.dollars)
        seconds += odds.seconds.contains(life.seconds)
    return Coverage(
        dollars_pct=round(100 * dollars / lives, 1), seconds_pct=round(100 * seconds / lives, 1)
    )


def _law(draw: random.Random, median_h: float) -> Callable[[], float]:
    """Return a generator of holds or outages in hours, with a random median and spread."""
    middle = math.log(median_h) + draw.gauss(0, 0.7)
    spread = draw.uniform(0.8, 1.6)
    return lambda: draw.lognormvariate(middle, spread)


def _history(hold: Callable[[], float], outage: Callable[[], float]) -> tuple[Exposure, Exposure]:
    """Return the holds and outages of ten days; the last one is censored."""
    left, holds, past_outages = _DAYS * 24.0, Exposure(), Exposure()
    while left > 0:
        up, down = hold(), outage()
        holds += Exposure.of([(min(up, left), up < left)])
        left -= up
        if left > 0:
            past_outages += Exposure.of([(min(down, left), down < left)])
            left -= down
    return holds, past_outages


def live_coverage(lives: int, seed: int) -> tuple[float, float]:
    """Return the coverage of the forecasts that a job's page shows during the run, in percent.

    The first value is the coverage of the remaining machine time. The second is that of the end,
    waits for capacity included. The simulated truth differs from the plan in eviction rates,
    recoveries, step times and the speed of each hold's machines.
    """
    draw = random.Random(seed)  # noqa: S311 - no secret
    told = [_told_right(draw) for _ in range(lives)]
    paid, ended = (round(100 * statistics.fmean(right), 1) for right in zip(*told, strict=True))
    return paid, ended


def _told_right(draw: random.Random) -> tuple[bool, bool]:
    job = _RunningJob(draw)
    job.live_until(draw.uniform(0.02, 0.9) * job.steps)
    seen, steps = job.observations(), round(job.steps - job.done)
    left, end = (
        live.forecast_remaining(
            job.course,
            steps=steps,
            seconds_per_step=job.pace,
            running=True,
            progress=seen,
            after=after,
        )
        for after in (live.NO_WAIT, expected_aftermath(job.past, 1))
    )
    began, waited = job.seconds, job.waited
    job.live_until(job.steps)
    took = job.seconds - began
    return left.p10 <= took <= left.p90, end.p10 <= took + job.waited - waited <= end.p90


class _RunningJob:
    """A running job: its simulated truth, and what it has shown of that so far."""

    def __init__(self, draw: random.Random) -> None:
        self.draw, self.steps, self.step_s = draw, draw.randint(500, 5000), 30.0
        planned = math.exp(draw.uniform(math.log(0.02), math.log(0.5)))  # evictions per hour
        step_s = self.step_s * draw.uniform(0.7, 1.4)
        self.course = live.ForecastInputs(
            seconds_per_step=step_s,
            recovery_seconds=600.0,
            checkpoint_seconds=300.0,
            evictions_per_second=planned / 3600,
            answered=0.0,
            seconds_per_step_p10=0.75 * step_s,
            seconds_per_step_p90=1.25 * step_s,
            verify_seconds=0.0,
        )
        self.spread = draw.uniform(0.8, 1.6)
        mean_h = draw.lognormvariate(0, 0.5) / planned
        self.median = math.log(mean_h) - self.spread**2 / 2
        self.unlike = draw.uniform(0.02, 0.5)  # relative standard deviation of step times
        self.done, self.seconds, self.evictions = 0.0, 0.0, 0
        self.waited, self.dry = 0.0, draw.uniform(0.3, 1.0)  # share of evictions before an outage
        self.outage = _law(draw, 1.0)
        self.past = self._past()
        self._hold()

    def _hold(self) -> None:
        self.left = self.draw.lognormvariate(self.median, self.spread) * 3600
        self.machines = self.draw.lognormvariate(0, 0.03)

    def _past(self) -> CapacityHistory:
        """Return the capacity history that ten days of other jobs recorded."""
        hold = _law(self.draw, 1.5)
        _, past_outages = _history(hold, self.outage)
        evictions = round(sum(past_outages.ends) / self.dry)
        return CapacityHistory(
            outages=past_outages, regrants=(evictions, evictions - sum(past_outages.ends))
        )

    def live_until(self, done: float) -> None:
        """Simulate training, evictions and recoveries until ``done`` steps are done."""
        while self.done < done:
            takes = (done - self.done) * self.step_s * self.machines
            takes *= max(self.draw.gauss(1, self.unlike / math.sqrt(done - self.done)), 0.1)
            trains = min(takes, self.left)
            self.done += (done - self.done) * trains / takes
            self.seconds += trains
            self.left -= trains
            if trains < takes:
                lost = self.draw.uniform(0, self.course.checkpoint_seconds) / self.step_s
                self.done = max(self.done - lost, 0.0)
                self.seconds += self.course.recovery_seconds * self.draw.lognormvariate(-0.045, 0.3)
                self.evictions += 1
                if self.draw.random() < self.dry:
                    self.waited += self.outage() * 3600
                self._hold()

    def observations(self) -> live.ObservedProgress:
        """Return the observations so far: the last fifty step times, and the evictions."""
        sigma = math.sqrt(math.log(1 + self.unlike**2))
        measured = sorted(
            self.step_s * self.machines * self.draw.lognormvariate(-(sigma**2) / 2, sigma)
            for _ in range(50)
        )
        self.pace = statistics.median(measured)
        return live.ObservedProgress(
            steps=len(measured),
            low=measured[5],
            high=measured[45],
            evictions=self.evictions,
            trained_s=self.pace * self.done,
        )
