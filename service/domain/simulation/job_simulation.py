"""A user's own job, lived many times by the production policy in invented weather. Pure.

Weather is drawn from what is believed: per offering and life, rates by age from their posteriors,
then capacity that comes and goes at these rates. Offerings are taken to be independent.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from service.domain.cloud.fleet import Offering
from service.domain.placement.policy_state import Candidate
from service.domain.planning.option import Option
from service.domain.simulation.monte_carlo import Interval, drawn, lasts
from service.domain.simulation.simulator import Case, Experience, Life, live
from service.domain.spot.age_hazard import DROUGHT_PRIOR, NOTHING, Ages, expected_rest
from service.domain.spot.eviction_hazard import prior_rates
from service.domain.states import CapacityType

HOUR = 3600.0
FINEST_S = 300.0  # of work that is long enough
_FEWEST = 20  # ticks of a short job, its start included
_MOST = 20_000  # ticks that are followed: a deadline beyond them changes nothing
_TICKS = 150  # of work: finer ones change little and take longer
_PATIENCE = 6  # so many times its work a job without a deadline is followed
_LONG = 1000.0  # hours


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One way of running the job, over all lives."""

    name: str
    dollars: Interval
    hours: Interval  # of those that came to their end
    evictions: Interval
    in_time_pct: float | None  # None: there is no deadline
    unfinished_pct: float
    on_demand_pct: float  # of the hours paid for

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return asdict(self)


def trials(
    options: Sequence[Option],
    holds: dict[Offering, Ages],
    *,
    deadline_s: float | None,
    lives: int,
    seed: int,
) -> list[Trial]:
    """With the deadline (if there is one), on Spot alone, and on demand."""
    zones = zones_of(options, holds)
    case = case_of(options[0], zones, deadline_s, finest_s=finest(options[0]))
    if case.deadline is not None:
        case = replace(case, deadline=min(case.deadline, _MOST))
    spot, kept = [], []
    for life in range(lives):  # the weather of one life at a time: of all it is hundreds of MB
        weather = _weather(zones, case, f"{seed} {life}")
        spot.append(_live(replace(case, deadline=None), weather))
        if case.deadline is not None:
            kept.append(_live(case, weather))
    found = [_trial("rekindle", kept, case)] if kept else []
    found.append(_trial("spot_only", spot, case))
    return [*found, _trial("on_demand", [_full_price(case)], case)]


def finest(first: Option) -> float:
    """Return the seconds of the shortest tick: a twentieth of a short job, its start included."""
    takes_s = first.recovery_seconds + first.total_steps * first.seconds_per_step
    return min(FINEST_S, takes_s / _FEWEST)


def zones_of(options: Sequence[Option], holds: dict[Offering, Ages]) -> tuple[Candidate, ...]:
    """Offerings of the chosen size: others would work at another speed."""
    first = options[0]
    return tuple(
        Candidate(
            offering=replace(option.offering, capacity_type=CapacityType.SPOT),
            nodes=option.nodes,
            hourly=float(option.price.hourly) * option.nodes,
            cold_start_s=option.recovery_seconds,
            evictions_per_hour=_evictions(option),
            holds=holds.get(option.offering, NOTHING),
        )
        for option in options
        if option.offering.vm_size == first.offering.vm_size
        and (option.offering.capacity_type is CapacityType.SPOT or option is first)
    )


def _evictions(option: Option) -> float | None:
    spot = option.offering.capacity_type is CapacityType.SPOT
    return option.expected_evictions / option.duration_p50 * HOUR if spot else None


def case_of(
    first: Option,
    zones: tuple[Candidate, ...],
    deadline_s: float | None,
    ticks: int = _TICKS,
    finest_s: float = FINEST_S,
) -> Case:
    """The job in the simulation's words; its work in at most so many ticks, none shorter."""
    work_s = first.total_steps * first.seconds_per_step
    tick_s = max(finest_s, work_s / ticks)
    where = replace(first.offering, capacity_type=CapacityType.ON_DEMAND)
    return Case(
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


def _weather(zones: Sequence[Candidate], case: Case, seed: str) -> tuple[tuple[bool, ...], ...]:
    """Capacity by zone and tick; a life has the same whatever the deadline is, or is without."""
    ticks = max(_PATIENCE * (case.work + case.cold), _MOST + case.cold + 1)
    return tuple(
        _zone(zone, ticks, case.tick_s, random.Random(f"{seed} {i}"))  # noqa: S311 - weather
        for i, zone in enumerate(zones)
    )


def _zone(zone: Candidate, ticks: int, tick_s: float, draw: random.Random) -> tuple[bool, ...]:
    """Capacity by tick; it begins up as often as it is up."""
    up = drawn(zone.holds, prior_rates(zone.evictions_per_hour), draw)
    down = drawn(NOTHING, DROUGHT_PRIOR, draw)
    mean_up, mean_down = (expected_rest(rates, 0.0, _LONG) for rates in (up, down))
    is_up = draw.random() < mean_up / (mean_up + mean_down)
    capacity: list[bool] = []
    while len(capacity) < ticks:
        hours = lasts(up if is_up else down, draw)
        capacity += [is_up] * min(max(1, round(hours * HOUR / tick_s)), ticks)
        is_up = not is_up
    return tuple(capacity[:ticks])


def _live(case: Case, weather: tuple[tuple[bool, ...], ...]) -> Life:
    return live(case, weather, 0, Experience.none(len(case.zones)))


def _full_price(case: Case) -> Life:
    assert case.on_demand is not None
    ticks = case.work + case.cold
    dollars = case.on_demand.hourly * ticks * case.tick_s / HOUR
    return Life(dollars=dollars, finished=ticks, on_demand=ticks, starts=1)


def _trial(name: str, lived: Sequence[Life], case: Case) -> Trial:
    done = [life.finished for life in lived if life.finished is not None]
    paid = sum(life.spot + life.on_demand for life in lived)
    in_time = None
    if case.deadline is not None:
        in_time = 100 * sum(ticks <= case.deadline for ticks in done) / len(lived)
    return Trial(
        name=name,
        dollars=Interval.of([life.dollars for life in lived]),
        hours=Interval.of([ticks * case.tick_s / HOUR for ticks in done] or [math.inf]),
        evictions=Interval.of([life.evictions for life in lived]),
        in_time_pct=in_time,
        unfinished_pct=100 * (1 - len(done) / len(lived)),
        on_demand_pct=100 * sum(life.on_demand for life in lived) / paid if paid else 0.0,
    )
