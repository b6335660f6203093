"""What limits the choice of a plan: money, time, and whether on demand may be bought."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_CEILING, Decimal
from typing import Self

from contract.choices import OnRisk
from service.domain.cloud.fleet import Offering
from service.domain.humanize import duration
from service.domain.lifecycle.constraints import Terms
from service.domain.money.budget import USUAL, Allowance
from service.domain.money.cost import CENT, cost_of
from service.domain.planning import forecast
from service.domain.planning.option import Option
from service.domain.states import CapacityType

_AT_BEST = Decimal(1) - Decimal(str(forecast.PLANNED_SPREAD))  # of what is computed


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The terms of a job at one moment. Nothing is limited unless it is asked for."""

    budget: Decimal | None = None  # US dollars
    deadline_seconds: float | None = None  # from now; below zero once it has passed
    on_demand: bool = True  # may be bought where there is Spot as well
    is_deadline_binding: bool = True  # False: a job that misses it runs all the same
    is_cancelled_if_late: bool = False
    allowance: Allowance = USUAL  # of which a budget keeps the price

    @classmethod
    def of(cls, terms: Terms, allowance: Allowance, now: datetime) -> Self:
        """Take them from the user's terms."""
        deadline = terms.deadline
        return cls(
            budget=terms.budget,
            deadline_seconds=None if deadline is None else forecast.left_until(deadline, now),
            on_demand=terms.switches or (terms.budget is None and deadline is None),
            is_deadline_binding=terms.on_deadline_risk is not OnRisk.NOTIFY,
            is_cancelled_if_late=terms.on_deadline_risk is OnRisk.CANCEL,
            allowance=allowance,
        )

    @property
    def are_set(self) -> bool:
        """Whether time or money is limited."""
        return self.budget is not None or self.deadline_seconds is not None

    @property
    def names(self) -> str:
        """What limits, for a sentence."""
        deadline, budget = self.deadline_seconds is not None, self.budget is not None
        return " and the ".join(["deadline"] * deadline + ["budget"] * budget)

    @property
    def away(self) -> str:
        """How far the deadline is, for a sentence."""
        left = self.deadline_seconds or 0.0
        return f"{duration(left)} away" if left > 0 else "in the past"

    def buys(self, offerings: Collection[Offering]) -> Collection[Offering]:
        """Of these offerings, those that machines are asked for of, as `Terms.buys`."""
        spots = {o for o in offerings if o.capacity_type is CapacityType.SPOT}
        return offerings if self.on_demand or not spots else spots

    def meets_deadline(self, option: Option) -> bool:
        """Whether nine of ten such jobs are done in time."""
        left = self.deadline_seconds
        return left is None or seconds_p90(option) <= left

    def fits_budget(self, option: Option) -> bool:
        """Whether nine of ten such jobs cost no more, what is kept to stop included."""
        return self.budget is None or self.budget_needed(option) <= self.budget

    def budget_needed(self, option: Option) -> Decimal:
        """Return the least budget in US dollars that the option fits, in whole cents."""
        return (option.cost_p90 + self.reserve(option)).quantize(CENT, rounding=ROUND_CEILING)

    def may_meet_deadline(self, option: Option) -> bool:
        """Whether a job that is never evicted is done in time."""
        left = self.deadline_seconds
        return left is None or self.seconds_at_best(option) <= left

    def may_fit_budget(self, option: Option) -> bool:
        """Whether a job that is never evicted, with quick steps, costs no more."""
        return self.budget is None or least_cost(option) + self.reserve(option) <= self.budget

    def reserve(self, option: Option) -> Decimal:
        """US dollars that the budget keeps to save and to delete the machines."""
        own = self.allowance.of_job(option.save_seconds)
        return own.stopping(option.price.hourly * option.nodes)

    def seconds_at_best(self, option: Option) -> float:
        """Seconds without evictions; with slow steps, where a job that is late is cancelled."""
        seconds = forecast.without_evictions(option)
        if not self.is_cancelled_if_late:
            return seconds
        return seconds + forecast.PLANNED_SPREAD * option.total_steps * option.seconds_per_step


NO_LIMITS = Limits()


def seconds_p90(option: Option) -> float:
    """Seconds of the whole job that nine of ten keep; the careful one of the two forecasts."""
    return max(option.duration_p90, forecast.whole(option).p90)


def least_cost(option: Option) -> Decimal:
    """What the job costs there without any eviction, if steps are as fast as they may turn out."""
    seconds = forecast.without_evictions(option)
    whole = cost_of(seconds=seconds, nodes=option.nodes, hourly=option.price.hourly)
    return whole * _AT_BEST
