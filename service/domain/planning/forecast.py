"""Forecast the time and money still to come of a job at P10, P50 and P90. Pure.

Evictions are Poisson; each costs a recovery and part of a checkpoint interval, see
`estimate_option`, and the wait for new machines. Their rate is Gamma: the plan's counts for a few
evictions, the job's own hours and evictions update and narrow it. The time of a step is the
measured one once there is one, with the spread of the measurements. Computed at every observation,
in microseconds; nothing is stored.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import NormalDist
from typing import Any, Self

from service.domain.planning.checkpoint_interval import lost_to_eviction
from service.domain.planning.option import Option

Z = 1.2816  # standard deviations from the middle to P10 and P90
PLANNED_SPREAD = 0.25  # of a step's time, as P90: computed and never measured
MEASURED_SPREAD = 0.10  # measured, but too few to say how they differ
_MIN_STEPS = 20  # measured steps say how they differ
_DRIFT = 0.04  # standard deviation: other machines, other rows; jobs alike differ by 0.055
BELIEF = 2.0  # evictions that the plan's rate counts for, as a band's (`eviction_hazard.py`)
_DOUBT = 1.5  # variance of the log of an outage's mean, times the number of outages observed
_NORMAL = NormalDist()


@dataclass(frozen=True, kw_only=True)
class ObservedProgress:
    """What the job itself has shown so far."""

    steps: int = 0  # the newest, of which the time was measured ...
    low: float = 0.0  # ... its P10 in seconds ...
    high: float = 0.0  # ... and its P90
    evictions: int = 0
    trained_s: float = 0.0

    @classmethod
    def of(cls, progress: Mapping[str, Any], evictions: int) -> Self:
        """Take the figures from a job's stored progress."""
        pace = progress.get("seconds_per_step") or 0.0
        return cls(
            steps=progress.get("steps_measured", 0),
            low=progress.get("seconds_per_step_p10", 0.0),
            high=progress.get("seconds_per_step_p90", 0.0),
            evictions=evictions,
            trained_s=pace * progress.get("step", 0),
        )

    def pace(self, median: float, steps: int) -> tuple[float, float]:
        """Return the expected seconds of a step over ``steps`` to come, and P90's share above it.

        Times of steps are taken for log-normal: few are much longer than the others.
        """
        if self.steps < _MIN_STEPS or self.low <= 0:
            return median, MEASURED_SPREAD
        apart = math.log(self.high / self.low) / (2 * Z)
        unsure = apart**2 * (1 / self.steps + 1 / max(steps, 1))
        return median * math.exp(apart**2 / 2), Z * math.sqrt(_DRIFT**2 + unsure)


NO_PROGRESS = ObservedProgress()


@dataclass(frozen=True, kw_only=True)
class EvictionWait:
    """The expected wait for Spot after an eviction."""

    share: float  # of evictions after which every offering refuses ...
    p50: float  # ... for this many seconds ...
    p90: float
    outages: float  # outages that this rests on, the prior's included


NO_WAIT = EvictionWait(share=0.0, p50=1.0, p90=1.0, outages=1.0)


@dataclass(frozen=True, kw_only=True)
class ForecastInputs:
    """The figures of an option that a forecast needs; small, as a job is shown often."""

    seconds_per_step: float  # as planned
    recovery_seconds: float
    checkpoint_seconds: float
    evictions_per_second: float
    answered: float  # share of evictions whose notice comes in time for a save
    seconds_per_step_p10: float
    seconds_per_step_p90: float
    verify_seconds: float  # after the last step

    @classmethod
    def of(cls, option: Option) -> Self:
        """Take the figures of an option."""
        return cls._of(option.__dict__, option.answered)

    @classmethod
    def of_plan(cls, plan: Mapping[str, Any]) -> Self:
        """Take the figures of the chosen option of a stored plan."""
        option = plan["options"][0]
        return cls._of(option, (option["cadence"] or {}).get("answered", 0.0))

    @classmethod
    def _of(cls, option: Mapping[str, Any], answered: float) -> Self:
        duration = option["duration_p50"]
        return cls(
            seconds_per_step=option["seconds_per_step"],
            recovery_seconds=option["recovery_seconds"],
            checkpoint_seconds=option["checkpoint_seconds"],
            evictions_per_second=option["expected_evictions"] / duration if duration > 0 else 0.0,
            answered=answered,
            seconds_per_step_p10=option["seconds_per_step_p10"],
            seconds_per_step_p90=option["seconds_per_step_p90"],
            verify_seconds=option["verify_seconds"],
        )

    def as_it_runs(self, interval: float | None, *, on_demand: bool) -> Self:
        """Return the figures with the interval in force; no evictions on demand."""
        evictions = 0.0 if on_demand else self.evictions_per_second
        return replace(
            self,
            evictions_per_second=evictions,
            checkpoint_seconds=interval or self.checkpoint_seconds,
        )

    def rate(self, progress: ObservedProgress) -> float:
        """Return evictions per second: the plan's rate updated with the job's own."""
        if self.evictions_per_second <= 0:
            return 0.0
        exposure_s = BELIEF / self.evictions_per_second + progress.trained_s
        return (BELIEF + progress.evictions) / exposure_s

    def expected(self, work: float, progress: ObservedProgress) -> float:
        """Return the expected evictions in ``work`` seconds, including those in recoveries."""
        rate = self.rate(progress)
        return rate * work / max(1 - rate * self.eviction_moments[0], 0.05)

    @property
    def eviction_moments(self) -> tuple[float, float]:
        """Return the mean seconds that an eviction costs without a wait, and the mean square.

        A recovery, and the work that the eviction undoes.
        """
        recovery = self.recovery_seconds
        undone, square = lost_to_eviction(self.checkpoint_seconds, self.answered)
        return recovery + undone, recovery**2 + 2 * recovery * undone + square

    def step_quantiles(
        self, measured: float | None, steps: int, progress: ObservedProgress
    ) -> tuple[float, float, float]:
        """Return seconds of a step as the mean of ``steps``, at P10, P50 and P90."""
        if measured is None:
            return self.seconds_per_step_p10, self.seconds_per_step, self.seconds_per_step_p90
        middle, spread = progress.pace(measured, steps)
        return middle * (1 - spread), middle, middle * (1 + spread)


@dataclass(frozen=True, kw_only=True)
class RemainingTime:
    """Seconds until the last step is done and its result is verified."""

    p10: float
    p50: float
    p90: float

    def probability_within(self, seconds: float) -> float:
        """Return the probability to be done within ``seconds``; log-normal between the three.

        >>> RemainingTime(p10=50.0, p50=100.0, p90=200.0).probability_within(100.0)
        0.5
        """
        if seconds <= 0:
            return 0.0
        if self.p50 <= 0:
            return 1.0
        edge = self.p90 if seconds > self.p50 else self.p10
        sigma = abs(math.log(max(edge, 1e-9) / self.p50)) / Z
        if sigma < 1e-9:
            return 1.0 if seconds >= self.p50 else 0.0
        return round(_normal(math.log(seconds / self.p50) / sigma), 3)

    def after(self, wait: Self) -> "RemainingTime":
        """Return the forecast with an independent ``wait`` before it."""
        middle = wait.p50 + self.p50
        return RemainingTime(
            p10=middle - math.hypot(wait.p50 - wait.p10, self.p50 - self.p10),
            p50=middle,
            p90=middle + math.hypot(wait.p90 - wait.p50, self.p90 - self.p50),
        )

    def no_later(self, seconds: float, than: Self) -> "RemainingTime":
        """Return the forecast with each quantile at most ``seconds`` after the other's."""
        most = max(seconds, 0.0)
        return RemainingTime(
            p10=min(self.p10, than.p10 + most),
            p50=min(self.p50, than.p50 + most),
            p90=min(self.p90, than.p90 + most),
        )


def forecast_job(option: Option) -> RemainingTime:
    """Forecast a job that has not begun."""
    course = ForecastInputs.of(option)
    return forecast_remaining(
        course, steps=option.total_steps, seconds_per_step=None, running=False
    )


def forecast_remaining(
    course: ForecastInputs,
    *,
    steps: int,
    seconds_per_step: float | None,
    running: bool,
    progress: ObservedProgress = NO_PROGRESS,
    after: EvictionWait = NO_WAIT,
) -> RemainingTime:
    """Forecast the ``steps`` left; ``running``: machines are there and train.

    ``after``: the waits after evictions, in which machines cost nothing.
    """
    steps = max(steps, 0)
    start = 0.0 if running or not steps else course.recovery_seconds
    times = course.step_quantiles(seconds_per_step, steps, progress)
    low, middle, high = (start + steps * seconds + course.verify_seconds for seconds in times)
    uninterrupted = RemainingTime(p10=low, p50=middle, p90=high)
    return (
        uninterrupted.after(_eviction_time(course, middle, progress, after))
        if middle > 0
        else uninterrupted
    )


def without_evictions(option: Option) -> float:
    """Return the seconds of the whole job without evictions, as on demand."""
    work = option.total_steps * option.seconds_per_step + option.verify_seconds
    return option.recovery_seconds + work


def seconds_until(deadline: datetime, now: datetime) -> float:
    """Return the seconds to the deadline; negative once it has passed."""
    return (deadline - now).total_seconds()


def _eviction_time(
    course: ForecastInputs, work: float, progress: ObservedProgress, after: EvictionWait
) -> RemainingTime:
    """Return seconds of all evictions in ``work`` seconds: recovery, lost work and waits.

    Their number is negative binomial (a Gamma rate), so none may come; else their cost is about
    log-normal, as the waits themselves are. The rate's uncertainty is skewed, and the waits' own is
    shared by all of them: neither is averaged out by many evictions.
    """
    counts, expected = BELIEF + progress.evictions, course.expected(work, progress)
    if expected <= 0 or course.eviction_moments[0] <= 0:
        return RemainingTime(p10=0.0, p50=0.0, p90=0.0)
    per_eviction, apart, outage = _eviction_moments(course, after)
    any_probability = -math.expm1(-counts * math.log1p(expected / counts))
    many, spread = _count_moments(expected, 1 + 1 / counts, any_probability)
    by_chance, chance = _count_moments(expected, 1.0, -math.expm1(-expected))
    noise = math.log(1 + apart / by_chance + chance / by_chance**2)
    weight = math.sqrt(max(spread / many**2 - chance / by_chance**2, 0.0) * counts)
    middle = math.log(many * per_eviction) - noise / 2 + weight * math.log(gamma_at(counts, 0.0))

    def at(share: float) -> float:
        if share + any_probability <= 1:
            return 0.0
        z = _NORMAL.inv_cdf(1 - (1 - share) / any_probability)
        far = math.log(gamma_at(counts, math.copysign(Z, z)) / gamma_at(counts, 0.0)) / Z
        return math.exp(middle + z * math.sqrt(noise + outage + (weight * far) ** 2))

    return RemainingTime(p10=at(0.1), p50=at(0.5), p90=at(0.9))


def _eviction_moments(course: ForecastInputs, after: EvictionWait) -> tuple[float, float, float]:
    """Return mean seconds of one eviction; its variance and the mean's, over the mean's square."""
    (lost_s, square), sigma = course.eviction_moments, math.log(after.p90 / after.p50) / Z
    waits = after.share * after.p50 * math.exp(sigma**2 / 2)
    squares = square + 2 * lost_s * waits + after.share * after.p50**2 * math.exp(2 * sigma**2)
    mean_s = lost_s + waits
    return mean_s, squares / mean_s**2 - 1, _DOUBT / after.outages * (waits / mean_s) ** 2


def _count_moments(expected: float, square: float, any_comes: float) -> tuple[float, float]:
    """Return the mean and variance of a number of evictions, given at least one.

    ``square``: what E[n (n - 1)] is over the square of the mean; 1: Poisson.
    """
    mean = expected / any_comes
    return mean, (expected + square * expected**2) / any_comes - mean**2


def gamma_at(shape: float, z: float) -> float:
    """Return a quantile of a Gamma of mean 1, ``z`` deviations out (Wilson and Hilferty).

    >>> round(gamma_at(2.0, Z), 2)
    1.94
    """
    return float((1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape))) ** 3)


def _normal(z: float) -> float:
    return 0.5 * (1 + math.erf(z / math.sqrt(2)))
