"""How long holds last, without any assumption on their law: Nelson-Aalen. Pure.

Lives that we cut ourselves, or that still last, count until they were cut. Beyond the longest life
seen, the hazard goes on as it was over the last third of what was seen.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Self

from service.domain.spot.age_hazard import expected_rest as by_rates

ENOUGH = 8  # ends, before a curve says more than rates by age do
_TAIL = 2 / 3
_SHORT = 1e-6  # hours: nothing can be told of lives so short


@dataclass(frozen=True)
class Lifetimes:
    """The cumulative hazard as steps: at each age in ``ages`` (hours) it rises to ``hazard``."""

    ages: tuple[float, ...]
    hazard: tuple[float, ...]
    longest: float  # hours
    ends: int

    @classmethod
    def of(cls, lives: Iterable[tuple[float, bool]]) -> Self:
        """From lives as (hours, ended by itself)."""
        ordered = sorted(lives)
        at_risk, total = len(ordered), 0.0
        ages, hazard = [], []
        for age, group in groupby(ordered, key=lambda life: life[0]):
            here = [ended for _, ended in group]
            if any(here):
                total += sum(here) / at_risk
                ages.append(age)
                hazard.append(total)
            at_risk -= len(here)
        longest = ordered[-1][0] if ordered else 0.0
        return cls(tuple(ages), tuple(hazard), longest, sum(ended for _, ended in ordered))

    def survival(self, age: float) -> float:
        """The share of lives that reach this age."""
        return math.exp(-self._cumulative(age))

    def expected_rest(self, age: float, horizon: float) -> float:
        """Hours that a life of this age still lasts, none counted past ``horizon`` hours."""
        end, rest, at = age + horizon, 0.0, age
        begun = self._cumulative(age)
        for step in (a for a in self.ages if age < a < min(end, self.longest)):
            rest += math.exp(begun - self._cumulative(at)) * (step - at)
            at = step
        known = min(end, max(self.longest, at))
        alive = math.exp(begun - self._cumulative(at))
        rest += alive * (known - at)
        return rest + math.exp(begun - self._cumulative(known)) * self._tail(end - known)

    def _cumulative(self, age: float) -> float:
        seen = 0.0
        for at, value in zip(self.ages, self.hazard, strict=True):
            if at > age:
                break
            seen = value
        return seen

    def _tail(self, hours: float) -> float:
        """Hours lived of so many past the longest life, by the last third's hazard."""
        late = self._cumulative(self.longest) - self._cumulative(self.longest * _TAIL)
        rate = late / (self.longest * (1 - _TAIL)) if self.longest > _SHORT else 0.0
        return hours if rate <= 0 else -math.expm1(-rate * hours) / rate


def expected_rest(lives: Lifetimes, rates: tuple[float, ...], age: float, horizon: float) -> float:
    """Hours that a hold still lasts: by the offering's own curve, by rates while that is thin."""
    if lives.ends >= ENOUGH and age < lives.longest:
        return lives.expected_rest(age, horizon)
    return by_rates(rates, age, horizon)
