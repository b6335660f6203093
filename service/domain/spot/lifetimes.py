"""Estimate lifetimes without a parametric model: the Nelson-Aalen estimator. Pure.

Censored lives, which we cut ourselves or which still last, count as at risk until then. Beyond
the longest observed life the hazard continues as over the last third.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Self

from service.domain.spot.age_hazard import mean_residual_life as by_rates

MIN_ENDS = 8  # ends, before a curve says more than rates by age do
_TAIL = 2 / 3
_SHORT = 1e-6  # hours: shorter lives give no rate


@dataclass(frozen=True)
class SurvivalCurve:
    """Cumulative hazard as steps: at each age in ``ages`` (hours) it rises to ``hazard``."""

    ages: tuple[float, ...]
    hazard: tuple[float, ...]
    longest: float  # hours
    ends: int

    @classmethod
    def of(cls, lifetimes: Iterable[tuple[float, bool]]) -> Self:
        """Build from lives as (hours, whether it ended by itself)."""
        ordered = sorted(lifetimes)
        at_risk, total = len(ordered), 0.0
        ages, hazard = [], []
        for age, group in groupby(ordered, key=lambda life: life[0]):
            ended_flags = [ended for _, ended in group]
            if any(ended_flags):
                total += sum(ended_flags) / at_risk
                ages.append(age)
                hazard.append(total)
            at_risk -= len(ended_flags)
        longest = ordered[-1][0] if ordered else 0.0
        return cls(tuple(ages), tuple(hazard), longest, sum(ended for _, ended in ordered))

    def mean_residual_life(self, age: float, horizon: float) -> float:
        """Return the expected hours still to live, capped at ``horizon``."""
        end, expected, at = age + horizon, 0.0, age
        begun = self._cumulative(age)
        for step in (a for a in self.ages if age < a < min(end, self.longest)):
            expected += math.exp(begun - self._cumulative(at)) * (step - at)
            at = step
        observed_end = min(end, max(self.longest, at))
        alive = math.exp(begun - self._cumulative(at))
        expected += alive * (observed_end - at)
        return expected + math.exp(begun - self._cumulative(observed_end)) * self._tail(
            end - observed_end
        )

    def _cumulative(self, age: float) -> float:
        total = 0.0
        for at, value in zip(self.ages, self.hazard, strict=True):
            if at > age:
                break
            total = value
        return total

    def _tail(self, hours: float) -> float:
        """Return the expected hours lived of ``hours`` beyond the longest observed life."""
        late = self._cumulative(self.longest) - self._cumulative(self.longest * _TAIL)
        rate = late / (self.longest * (1 - _TAIL)) if self.longest > _SHORT else 0.0
        return hours if rate <= 0 else -math.expm1(-rate * hours) / rate


def mean_residual_life(
    curve: SurvivalCurve, rates: tuple[float, ...], age: float, horizon: float
) -> float:
    """Return the expected hours of a hold: by its own curve, by rates with few ends."""
    if curve.ends >= MIN_ENDS and age < curve.longest:
        return curve.mean_residual_life(age, horizon)
    return by_rates(rates, age, horizon)
