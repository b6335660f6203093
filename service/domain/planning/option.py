"""Estimate one offering with one layout: duration, cost and evictions of the whole job.

Evictions are Poisson. Each costs a recovery and the work that it undoes
(`checkpoint_interval.lost_to_eviction`); both are paid for.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Self

from contract.choices import Engine
from service.domain.cloud.fleet import Offering, Price
from service.domain.money.cost import cents, cost_of
from service.domain.performance.layout import Layout
from service.domain.performance.memory import MemoryEstimate
from service.domain.performance.throughput import StepTime
from service.domain.planning.checkpoint_interval import (
    Cadence,
    lost_to_eviction,
    plan_interval,
    seconds_to_save,
)
from service.domain.states import CapacityType

_P90 = 1.2816  # standard deviations


@dataclass(frozen=True, kw_only=True)
class Option:
    """One offering with its best layout, duration and cost."""

    offering: Offering
    price: Price
    nodes: int
    processes_per_node: int
    zero_stage: int
    micro_batch: int
    accumulation: int
    global_batch: int
    total_steps: int
    memory: MemoryEstimate  # of one GPU
    seconds_per_step: float
    expected_evictions: float
    duration_p50: float  # seconds, from the first request to the final model
    duration_p90: float
    cost_p50: Decimal
    cost_p90: Decimal
    on_demand_cost: Decimal  # the same machines on demand, without any eviction
    checkpoint_seconds: float
    cadence: Cadence | None  # what that rests on; None: the user chose it
    recovery_seconds: float  # from asking for machines to a training step
    seconds_per_step_p10: float  # of the expected time of a step
    seconds_per_step_p90: float
    roofline_seconds: float  # the same by the roofline alone, before past jobs were asked
    node_evictions_per_hour: float  # of one node; what the expected evictions rest on ...
    evictions_from: str  # ... and who says so; "": on demand
    verify_seconds: float  # after the last step; 0: not verified
    save_seconds: float  # reserved to save and stop

    def undone_seconds(self, interval: float | None = None) -> float:
        """Return the mean training time that an eviction undoes; ``interval``: that in force."""
        return lost_to_eviction(interval or self.checkpoint_seconds, self.answered)[0]

    @property
    def answered(self) -> float:
        """Return the planned share of evictions whose notice comes in time for a save."""
        return _answered(self.cadence)

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-able document, flat but for memory; money as decimal strings."""
        members = vars(self) | vars(self.offering) | vars(self.price)
        del members["offering"], members["price"], members["cluster"]
        memory = {"total": self.memory.total, "needed": self.memory.needed}
        members["memory"] = vars(self.memory) | memory
        members["cadence"] = self.cadence and asdict(self.cadence)
        return {k: str(v) if isinstance(v, Decimal) else v for k, v in members.items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Parse what ``as_dict`` returned."""
        names = cls.__dataclass_fields__.keys() - {"offering", "price"}
        members = {name: data[name] for name in names}
        money = {name: Decimal(data[name]) for name in ("cost_p50", "cost_p90", "on_demand_cost")}
        offering = Offering(
            region=data["region"],
            vm_size=data["vm_size"],
            capacity_type=CapacityType(data["capacity_type"]),
            engine=Engine(data["engine"]),
        )
        price = Price(
            hourly=Decimal(data["hourly"]), on_demand_hourly=Decimal(data["on_demand_hourly"])
        )
        parts = {name: data["memory"][name] for name in MemoryEstimate.__dataclass_fields__}
        objects = {"offering": offering, "price": price, "memory": MemoryEstimate(**parts)}
        objects["cadence"] = data["cadence"] and Cadence.from_dict(data["cadence"])
        return cls(**members | money | objects)


@dataclass(frozen=True, kw_only=True)
class Hazard:
    """What takes time beside the steps: evictions of nodes, recovery and verification."""

    evictions_per_hour: float  # of one node
    recovery_seconds: float  # from an eviction to the next training step; a first start as well
    trained: int = 0  # parameters, whose state a save holds
    source: str = ""  # who says how often
    verify_seconds: float = 0.0  # after the last step
    fewest_nodes: int | None = None  # that may be left to save; None: all of them


def estimate_option(
    offering: Offering, price: Price, layout: Layout, step: StepTime, hazard: Hazard
) -> Option | None:
    """Estimate the whole job there; None if it is evicted too often to advance."""
    recipe = layout.recipe
    per_second = layout.nodes * hazard.evictions_per_hour / 3600
    interval, cadence = _cadence(offering, price, layout, step, hazard)
    lost_s = hazard.recovery_seconds + lost_to_eviction(interval, _answered(cadence))[0]
    useful = 1 - per_second * lost_s  # of the time, once evictions and recoveries are paid for
    if useful <= 0:
        return None
    start = hazard.recovery_seconds
    verify, steps = hazard.verify_seconds, recipe.total_steps
    work, long_work = steps * step.seconds + verify, steps * step.high + verify
    evictions = per_second * (start + work) / useful
    many = per_second * (start + long_work) / useful
    many += _P90 * math.sqrt(many)
    p50, p90 = start + work + evictions * lost_s, start + long_work + many * lost_s
    nodes = layout.nodes
    return Option(
        offering=offering,
        price=price,
        nodes=nodes,
        processes_per_node=layout.processes_per_node,
        zero_stage=layout.zero_stage,
        micro_batch=layout.micro_batch,
        accumulation=layout.accumulation,
        global_batch=recipe.global_batch,
        total_steps=steps,
        memory=layout.memory,
        seconds_per_step=step.seconds,
        expected_evictions=evictions,
        duration_p50=p50,
        duration_p90=p90,
        cost_p50=cents(cost_of(seconds=p50, nodes=nodes, hourly=price.hourly)),
        cost_p90=cents(cost_of(seconds=p90, nodes=nodes, hourly=price.hourly)),
        on_demand_cost=cents(
            cost_of(seconds=start + work, nodes=nodes, hourly=price.on_demand_hourly)
        ),
        checkpoint_seconds=interval,
        cadence=cadence,
        recovery_seconds=start,
        seconds_per_step_p10=step.low,
        seconds_per_step_p90=step.high,
        roofline_seconds=step.roofline or step.seconds,
        node_evictions_per_hour=hazard.evictions_per_hour,
        evictions_from=hazard.source,
        verify_seconds=verify,
        save_seconds=_save_seconds(layout, step, hazard),
    )


def _answered(cadence: Cadence | None) -> float:
    return cadence.answered if cadence else 0.0


def _save_seconds(layout: Layout, step: StepTime, hazard: Hazard) -> float:
    nodes = hazard.fewest_nodes or layout.nodes
    return seconds_to_save(layout, hazard.trained, step=step.high, nodes=nodes)


def _cadence(
    offering: Offering, price: Price, layout: Layout, step: StepTime, hazard: Hazard
) -> tuple[float, Cadence | None]:
    if layout.recipe.checkpoint_seconds is not None:
        return layout.recipe.checkpoint_seconds, None
    return plan_interval(
        layout,
        hazard.trained,
        step=step.seconds,
        evictions_per_hour=layout.nodes * hazard.evictions_per_hour,
        dollars_per_hour=layout.nodes * float(price.hourly),
        noticed=offering.has_metadata,
    )
