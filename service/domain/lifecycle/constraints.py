"""Constraints of a job beside the training itself: budget, deadline, regions, priority."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Self

from contract.choices import Engine, OnExhausted, OnRisk, Priority
from service.domain.cloud.fleet import Offering, Price
from service.domain.money.cost import CURRENCY
from service.domain.states import CapacityType

# Why the service stops an attempt by itself.
OVER_BUDGET = "the budget is exhausted"
MOVES_TO_ON_DEMAND = "Spot would miss the deadline, so the job goes on on demand"
RETURNS_TO_SPOT = "Spot is likely to be had again, so the job goes back to it"


@dataclass(frozen=True, kw_only=True)
class JobConstraints:
    """Constraints of a job; by default nothing is limited."""

    budget: Decimal | None = None  # US dollars: machines and storage, until the job is over
    on_exhausted: OnExhausted = OnExhausted.PAUSE
    deadline: datetime | None = None
    on_deadline_risk: OnRisk = OnRisk.SWITCH
    max_price: Decimal | None = None  # US dollars for an hour of one GPU; of a machine without
    priority: Priority = Priority.NORMAL  # in the queue, among its project's own jobs
    regions: tuple[str, ...] = ()  # where data may be and machines may run; empty: anywhere
    engine: Engine | None = None  # that runs the machines; None: any

    @property
    def switches(self) -> bool:
        """Return whether the job moves to on demand to meet its deadline."""
        return self.deadline is not None and self.on_deadline_risk is OnRisk.SWITCH

    def buys(self, allowed: Sequence[Offering]) -> Sequence[Offering]:
        """Return the offerings to use: on demand only for the deadline or without Spot."""
        spots = [o for o in allowed if o.capacity_type is CapacityType.SPOT]
        return allowed if self.switches or not spots else spots

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-able document; money as decimal strings, deadline in unix seconds."""
        return {
            "budget": None if self.budget is None else str(self.budget),
            "on_exhausted": str(self.on_exhausted),
            "deadline": None if self.deadline is None else int(self.deadline.timestamp()),
            "on_deadline_risk": str(self.on_deadline_risk),
            "max_price": None if self.max_price is None else str(self.max_price),
            "regions": list(self.regions),
            "engine": self.engine and str(self.engine),
            "priority": str(self.priority),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Parse what ``as_dict`` returned; missing members mean no limit."""
        budget, most, until = (data.get(k) for k in ("budget", "max_price", "deadline"))
        return cls(
            budget=None if budget is None else Decimal(budget),
            on_exhausted=OnExhausted(data.get("on_exhausted", OnExhausted.PAUSE)),
            deadline=None if until is None else datetime.fromtimestamp(until, UTC),
            on_deadline_risk=OnRisk(data.get("on_deadline_risk", OnRisk.SWITCH)),
            max_price=None if most is None else Decimal(most),
            regions=tuple(data.get("regions", ())),
            engine=Engine(data["engine"]) if data.get("engine") else None,
            priority=Priority(data.get("priority", Priority.NORMAL)),
        )

    def binding_deadline_seconds(
        self, since: datetime, requested_hours: float | None = None
    ) -> float | None:
        """Return seconds from ``since`` to the deadline; ``requested_hours`` overrides it.

        None without a deadline, or where the job does not move to on demand to meet it.
        """
        if requested_hours is not None:
            return requested_hours * 3600
        if self.deadline is None or not self.switches:
            return None
        return (self.deadline - since).total_seconds()

    def forbids(self, offering: Offering, price: Price | None, gpus: int) -> str:
        """Return why the offering must not be used, to follow its name; "" if it may.

        ``gpus``: of one machine; with 0, max_price applies to an hour of the machine.
        """
        if self.regions and offering.region not in self.regions:
            return f"is not in {' or '.join(self.regions)}"
        if self.engine and offering.engine is not self.engine:
            return f"is not run by {self.engine}"
        if self.max_price is None or price is None:
            return ""
        unit_price = price.hourly / max(gpus, 1)
        if unit_price <= self.max_price:
            return ""
        unit = "GPU-hour" if gpus else "hour"
        return f"costs {unit_price:.2f} {CURRENCY} per {unit}, more than max_price {self.max_price}"


UNCONSTRAINED = JobConstraints()
