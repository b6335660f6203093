"""What is still to come of a job, with how sure that is: time and money at P10, P50 and P90. Pure.

Evictions are Poisson at the rate that the plan expects there, and each costs a recovery and half a
checkpoint interval, as in `option.weigh`. The time of a step is the measured one once there is
one. Made anew with every look: nothing of it is kept.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from service.domain.option import Option

_RECOVERY = 600.0  # plans of the release before do not say
_CHECKPOINTS = 300.0
_Z = 1.2816  # standard deviations from the middle to P10 and P90
PLANNED_SPREAD = 0.25  # of a step's time, as P90: computed and never measured
MEASURED_SPREAD = 0.10  # measured; lengths of rows differ from step to step


@dataclass(frozen=True, kw_only=True)
class Course:
    """The few figures of an option that a forecast rests on; a job is shown too often for more."""

    seconds_per_step: float  # as planned
    recovery_seconds: float
    checkpoint_seconds: float
    evictions_per_second: float
    seconds_per_step_p10: float = 0.0  # 0: plans of the release before do not say
    seconds_per_step_p90: float = 0.0

    @classmethod
    def of(cls, option: Option) -> Self:
        """Of an option."""
        return cls._of(option.__dict__)

    @classmethod
    def of_plan(cls, plan: Mapping[str, Any]) -> Self:
        """Of the chosen option of a plan as it is stored."""
        return cls._of(plan["options"][0])

    @classmethod
    def _of(cls, told: Mapping[str, Any]) -> Self:
        takes = told["duration_p50"]
        return cls(
            seconds_per_step=told["seconds_per_step"],
            recovery_seconds=told.get("recovery_seconds", _RECOVERY),
            checkpoint_seconds=told.get("checkpoint_seconds", _CHECKPOINTS),
            evictions_per_second=told["expected_evictions"] / takes if takes > 0 else 0.0,
            seconds_per_step_p10=told.get("seconds_per_step_p10", 0.0),
            seconds_per_step_p90=told.get("seconds_per_step_p90", 0.0),
        )

    def steps_take(self, measured: float | None) -> tuple[float, float, float]:
        """Seconds of a step at P10, P50 and P90."""
        middle = measured or self.seconds_per_step
        if measured is None and self.seconds_per_step_p90 > 0:
            return self.seconds_per_step_p10, middle, self.seconds_per_step_p90
        spread = PLANNED_SPREAD if measured is None else MEASURED_SPREAD
        return middle * (1 - spread), middle, middle * (1 + spread)


@dataclass(frozen=True, kw_only=True)
class ToCome:
    """Seconds until the last step is done."""

    p10: float
    p50: float
    p90: float

    def odds(self, seconds: float) -> float:
        """The probability that it is done within so many seconds; log-normal between the three.

        >>> ToCome(p10=50.0, p50=100.0, p90=200.0).odds(100.0)
        0.5
        """
        if seconds <= 0:
            return 0.0
        if self.p50 <= 0:
            return 1.0
        edge = self.p90 if seconds > self.p50 else self.p10
        sigma = abs(math.log(max(edge, 1e-9) / self.p50)) / _Z
        if sigma < 1e-9:
            return 1.0 if seconds >= self.p50 else 0.0
        return round(_normal(math.log(seconds / self.p50) / sigma), 3)


def whole(option: Option) -> ToCome:
    """Of a job that has not begun."""
    course = Course.of(option)
    return of(course, steps=option.total_steps, seconds_per_step=None, running=False)


def of(course: Course, *, steps: int, seconds_per_step: float | None, running: bool) -> ToCome:
    """Of so many steps that are left; ``running``: machines are there and train."""
    steps = max(steps, 0)
    start = 0.0 if running or not steps else course.recovery_seconds
    low, middle, high = course.steps_take(seconds_per_step)
    time, evicted = _with_evictions(course, start, steps * middle)
    stretch = time / (start + steps * middle) if time else 1.0
    return ToCome(
        p10=max(time - math.hypot(steps * (middle - low) * stretch, evicted), start + steps * low),
        p50=time,
        p90=time + math.hypot(steps * (high - middle) * stretch, evicted),
    )


def without_evictions(option: Option) -> float:
    """Seconds of the whole job if nothing is ever taken away, as on demand."""
    return option.recovery_seconds + option.total_steps * option.seconds_per_step


def left_until(deadline: datetime, now: datetime) -> float:
    """Seconds; below zero once it has passed."""
    return (deadline - now).total_seconds()


def _with_evictions(course: Course, start: float, work: float) -> tuple[float, float]:
    """Seconds as expected, and how many more or fewer it takes with bad luck or good.

    As many evictions as only one job in ten has more of, each for what it costs in the square
    mean: of half a checkpoint interval that is drawn evenly, the whole.
    """
    rate, recovery = course.evictions_per_second, course.recovery_seconds
    every = course.checkpoint_seconds
    lost = recovery + every / 2
    useful = max(1 - rate * lost, 0.05)
    expected = rate * (start + work) / useful
    square = recovery**2 + recovery * every + every**2 / 3
    return start + work + expected * lost, _Z * math.sqrt(expected * square)


def _normal(z: float) -> float:
    return 0.5 * (1 + math.erf(z / math.sqrt(2)))
