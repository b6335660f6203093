"""Limits on the choice of a plan: budget, deadline, and whether on demand may be used."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_CEILING, Decimal
from typing import Self

from contract.choices import OnRisk
from service.domain.cloud.fleet import Offering
from service.domain.humanize import format_duration
from service.domain.lifecycle.constraints import JobConstraints
from service.domain.money.budget import DEFAULT_ALLOWANCE, Allowance
from service.domain.money.cost import CENT, cost_of
from service.domain.planning import forecast
from service.domain.planning.option import Option
from service.domain.states import CapacityType

_AT_BEST = Decimal(1) - Decimal(str(forecast.PLANNED_SPREAD))  # of what is computed


@dataclass(frozen=True, kw_only=True)
class PlanLimits:
    """The limits of a job at one moment; by default nothing is limited."""

    budget: Decimal | None = None  # US dollars
    deadline_seconds: float | None = None  # from now; below zero once it has passed
    on_demand: bool = True  # may be bought where there is Spot as well
    is_deadline_binding: bool = True  # False: a job that misses it runs all the same
    is_cancelled_if_late: bool = False
    allowance: Allowance = DEFAULT_ALLOWANCE  # of which a budget keeps the price

    @classmethod
    def of(cls, terms: JobConstraints, allowance: Allowance, now: datetime) -> Self:
        """Derive the limits from the job's constraints."""
        deadline = terms.deadline
        return cls(
            budget=terms.budget,
            deadline_seconds=None if deadline is None else forecast.seconds_until(deadline, now),
            on_demand=terms.switches or (terms.budget is None and deadline is None),
            is_deadline_binding=terms.on_deadline_risk is not OnRisk.NOTIFY,
            is_cancelled_if_late=terms.on_deadline_risk is OnRisk.CANCEL,
            allowance=allowance,
        )

    @property
    def are_set(self) -> bool:
        """Return whether time or money is limited."""
        return self.budget is not None or self.deadline_seconds is not None

    @property
    def names(self) -> str:
        """Return what is limited, for a sentence."""
        deadline, budget = self.deadline_seconds is not None, self.budget is not None
        return " and the ".join(["deadline"] * deadline + ["budget"] * budget)

    @property
    def deadline_text(self) -> str:
        """Return the time to the deadline, for a sentence."""
        remaining_s = self.deadline_seconds or 0.0
        return f"{format_duration(remaining_s)} away" if remaining_s > 0 else "in the past"

    def buys(self, offerings: Collection[Offering]) -> Collection[Offering]:
        """Return the offerings to use, as `JobConstraints.buys` does."""
        spots = {o for o in offerings if o.capacity_type is CapacityType.SPOT}
        return offerings if self.on_demand or not spots else spots

    def meets_deadline(self, option: Option) -> bool:
        """Return whether nine of ten such jobs meet the deadline."""
        remaining_s = self.deadline_seconds
        return remaining_s is None or seconds_p90(option) <= remaining_s

    def fits_budget(self, option: Option) -> bool:
        """Return whether nine of ten such jobs fit the budget with the reserve to stop."""
        return self.budget is None or self.budget_needed(option) <= self.budget

    def budget_needed(self, option: Option) -> Decimal:
        """Return the least budget in US dollars that the option fits, in whole cents."""
        return (option.cost_p90 + self.reserve(option)).quantize(CENT, rounding=ROUND_CEILING)

    def may_meet_deadline(self, option: Option) -> bool:
        """Return whether a job without evictions meets the deadline."""
        remaining_s = self.deadline_seconds
        return remaining_s is None or self.seconds_at_best(option) <= remaining_s

    def may_fit_budget(self, option: Option) -> bool:
        """Return whether a job without evictions and with fast steps fits the budget."""
        return self.budget is None or least_cost(option) + self.reserve(option) <= self.budget

    def reserve(self, option: Option) -> Decimal:
        """Return US dollars that the budget reserves to save and to delete the machines."""
        own = self.allowance.of_job(option.save_seconds)
        return own.stopping_cost(option.price.hourly * option.nodes)

    def seconds_at_best(self, option: Option) -> float:
        """Return seconds without evictions; with slow steps if lateness cancels the job."""
        seconds = forecast.without_evictions(option)
        if not self.is_cancelled_if_late:
            return seconds
        return seconds + forecast.PLANNED_SPREAD * option.total_steps * option.seconds_per_step


NO_LIMITS = PlanLimits()


def seconds_p90(option: Option) -> float:
    """Return the P90 duration of the whole job: the longer of the two forecasts."""
    return max(option.duration_p90, forecast.forecast_job(option).p90)


def least_cost(option: Option) -> Decimal:
    """Return the cost of the job without evictions and with the fastest likely steps."""
    seconds = forecast.without_evictions(option)
    cost = cost_of(seconds=seconds, nodes=option.nodes, hourly=option.price.hourly)
    return cost * _AT_BEST
