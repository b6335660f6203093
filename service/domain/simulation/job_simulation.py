"""Simulate a user's job many times with the production policy and drawn Spot capacity. Pure.

Each run draws rates by age from their posteriors per offering, then capacity that alternates at
these rates. Offerings are assumed to be independent.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from service.domain.cloud.fleet import Offering
from service.domain.placement.policy_state import Candidate
from service.domain.planning.option import Option
from service.domain.simulation.monte_carlo import PercentileInterval, draw_duration, draw_rates
from service.domain.simulation.simulator import (
    MarketExperience,
    SimulatedRun,
    SimulationCase,
    simulate,
)
from service.domain.spot.age_hazard import NO_EXPOSURE, OUTAGE_PRIOR, Exposure, mean_residual_life
from service.domain.spot.eviction_hazard import prior_rates
from service.domain.states import CapacityType

HOUR = 3600.0
FINEST_S = 300.0  # of work that is long enough
_FEWEST = 20  # ticks of a short job, its start included
_MOST = 20_000  # ticks that are followed: a deadline beyond them changes nothing
_TICKS = 150  # of work: finer ones change little and take longer
_MAX_WORK_MULTIPLE = 6  # times its work: how long a job without a deadline is simulated
_LONG = 1000.0  # hours


@dataclass(frozen=True, kw_only=True)
class StrategyResult:
    """The outcome of one strategy over all runs."""

    name: str
    dollars: PercentileInterval
    hours: PercentileInterval  # of those that came to their end
    evictions: PercentileInterval
    in_time_pct: float | None  # None: there is no deadline
    unfinished_pct: float
    on_demand_pct: float  # of the hours paid for

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-able document."""
        return asdict(self)


def simulate_job(
    options: Sequence[Option],
    holds: dict[Offering, Exposure],
    *,
    deadline_s: float | None,
    lives: int,
    seed: int,
) -> list[StrategyResult]:
    """Simulate the job with its deadline (if any), on Spot only, and on demand only."""
    zones = spot_zones(options, holds)
    case = build_case(options[0], zones, deadline_s, finest_s=shortest_tick(options[0]))
    if case.deadline is not None:
        case = replace(case, deadline=min(case.deadline, _MOST))
    spot, with_deadline = [], []
    for life in range(lives):  # one trace at a time: all together are hundreds of MB
        capacity = _draw_capacity(zones, case, f"{seed} {life}")
        spot.append(_simulate_fresh(replace(case, deadline=None), capacity))
        if case.deadline is not None:
            with_deadline.append(_simulate_fresh(case, capacity))
    results = [_strategy_result("rekindle", with_deadline, case)] if with_deadline else []
    results.append(_strategy_result("spot_only", spot, case))
    return [*results, _strategy_result("on_demand", [_run_on_demand(case)], case)]


def shortest_tick(first: Option) -> float:
    """Return the seconds of the shortest tick: a twentieth of a short job, its start included."""
    takes_s = first.recovery_seconds + first.total_steps * first.seconds_per_step
    return min(FINEST_S, takes_s / _FEWEST)


def spot_zones(options: Sequence[Option], holds: dict[Offering, Exposure]) -> tuple[Candidate, ...]:
    """Return Spot candidates of the chosen VM size: others would train at another speed."""
    first = options[0]
    return tuple(
        Candidate(
            offering=replace(option.offering, capacity_type=CapacityType.SPOT),
            nodes=option.nodes,
            hourly=float(option.price.hourly) * option.nodes,
            cold_start_s=option.recovery_seconds,
            evictions_per_hour=_evictions_per_hour(option),
            holds=holds.get(option.offering, NO_EXPOSURE),
        )
        for option in options
        if option.offering.vm_size == first.offering.vm_size
        and (option.offering.capacity_type is CapacityType.SPOT or option is first)
    )


def _evictions_per_hour(option: Option) -> float | None:
    spot = option.offering.capacity_type is CapacityType.SPOT
    return option.expected_evictions / option.duration_p50 * HOUR if spot else None


def build_case(
    first: Option,
    zones: tuple[Candidate, ...],
    deadline_s: float | None,
    ticks: int = _TICKS,
    finest_s: float = FINEST_S,
) -> SimulationCase:
    """Return the job as a simulation case of at most ``ticks`` ticks of work."""
    work_s = first.total_steps * first.seconds_per_step
    tick_s = max(finest_s, work_s / ticks)
    where = replace(first.offering, capacity_type=CapacityType.ON_DEMAND)
    return SimulationCase(
        tick_s=tick_s,
        work=max(1, math.ceil(work_s / tick_s)),
        deadline=None if deadline_s is None else int(deadline_s / tick_s),
        cold=max(1, math.ceil(first.recovery_seconds / tick_s)),
        lost=round(first.undone_seconds() / tick_s),
        zones=zones,
        on_demand=Candidate(
            offering=where,
            nodes=first.nodes,
            hourly=float(first.price.on_demand_hourly) * first.nodes,
            cold_start_s=first.recovery_seconds,
        ),
    )


def _draw_capacity(
    zones: Sequence[Candidate], case: SimulationCase, seed: str
) -> tuple[tuple[bool, ...], ...]:
    """Draw capacity by zone and tick; a run has the same with any deadline."""
    ticks = max(_MAX_WORK_MULTIPLE * (case.work + case.cold), _MOST + case.cold + 1)
    return tuple(
        _draw_zone(zone, ticks, case.tick_s, random.Random(f"{seed} {i}"))  # noqa: S311 - no secret
        for i, zone in enumerate(zones)
    )


def _draw_zone(zone: Candidate, ticks: int, tick_s: float, draw: random.Random) -> tuple[bool, ...]:
    """Draw capacity by tick; the state at the start follows the mean durations."""
    up = draw_rates(zone.holds, prior_rates(zone.evictions_per_hour), draw)
    down = draw_rates(NO_EXPOSURE, OUTAGE_PRIOR, draw)
    mean_up, mean_down = (mean_residual_life(rates, 0.0, _LONG) for rates in (up, down))
    is_up = draw.random() < mean_up / (mean_up + mean_down)
    capacity: list[bool] = []
    while len(capacity) < ticks:
        hours = draw_duration(up if is_up else down, draw)
        capacity += [is_up] * min(max(1, round(hours * HOUR / tick_s)), ticks)
        is_up = not is_up
    return tuple(capacity[:ticks])


def _simulate_fresh(case: SimulationCase, capacity: tuple[tuple[bool, ...], ...]) -> SimulatedRun:
    return simulate(case, capacity, 0, MarketExperience.empty(len(case.zones)))


def _run_on_demand(case: SimulationCase) -> SimulatedRun:
    assert case.on_demand is not None
    ticks = case.work + case.cold
    dollars = case.on_demand.hourly * ticks * case.tick_s / HOUR
    return SimulatedRun(dollars=dollars, finished=ticks, on_demand=ticks, starts=1)


def _strategy_result(
    name: str, runs: Sequence[SimulatedRun], case: SimulationCase
) -> StrategyResult:
    done = [run.finished for run in runs if run.finished is not None]
    paid = sum(run.spot + run.on_demand for run in runs)
    in_time = None
    if case.deadline is not None:
        in_time = 100 * sum(ticks <= case.deadline for ticks in done) / len(runs)
    return StrategyResult(
        name=name,
        dollars=PercentileInterval.of([run.dollars for run in runs]),
        hours=PercentileInterval.of([ticks * case.tick_s / HOUR for ticks in done] or [math.inf]),
        evictions=PercentileInterval.of([run.evictions for run in runs]),
        in_time_pct=in_time,
        unfinished_pct=100 * (1 - len(done) / len(runs)),
        on_demand_pct=100 * sum(run.on_demand for run in runs) / paid if paid else 0.0,
    )
