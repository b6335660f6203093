"""`rekindle simulate`: a plan's job, lived many times."""

from dataclasses import replace
from decimal import Decimal

import pytest

from service.domain.cloud.fleet import Offering, Price
from service.domain.performance.memory import MemoryEstimate
from service.domain.planning.option import Option
from service.domain.simulation.job_simulation import (
    StrategyResult,
    build_case,
    shortest_tick,
    simulate_job,
    spot_zones,
)
from service.domain.spot.age_hazard import NO_EXPOSURE, Exposure
from service.domain.states import CapacityType

HOUR = 3600.0
SEEN = Exposure((9.0, 0.0, 0.0, 0.0), (1, 0, 0, 0))
NO_MEMORY = MemoryEstimate(
    parameters=0,
    gradients=0,
    optimizer=0,
    activations=0,
    logits=0,
    update=0,
    buffers=0,
    runtime=0,
    cache=0,
    host=0,
)


def option(region: str, evictions: float) -> Option:
    """Ten hours of work on two nodes, a dollar an hour each, four on demand."""
    return Option(
        offering=Offering(region=region, vm_size="size", capacity_type=CapacityType.SPOT),
        price=Price(hourly=Decimal(1), on_demand_hourly=Decimal(4)),
        nodes=2,
        processes_per_node=1,
        zero_stage=2,
        micro_batch=1,
        accumulation=1,
        global_batch=2,
        total_steps=3600,
        memory=NO_MEMORY,
        seconds_per_step=10.0,
        expected_evictions=evictions,
        duration_p50=10 * HOUR,
        duration_p90=12 * HOUR,
        cost_p50=Decimal(20),
        cost_p90=Decimal(24),
        on_demand_cost=Decimal(80),
        checkpoint_seconds=300.0,
        cadence=None,
        recovery_seconds=600.0,
        seconds_per_step_p10=7.5,
        seconds_per_step_p90=12.5,
        roofline_seconds=10.0,
        node_evictions_per_hour=evictions / 20,
        evictions_from="",
        verify_seconds=0.0,
        save_seconds=900.0,
    )


def lived(deadline_s: float | None, seed: int = 1) -> dict[str, StrategyResult]:
    options = [option("eastus", 3.0), option("westus", 1.0)]
    trials = simulate_job(options, {}, deadline_s=deadline_s, lives=5, seed=seed)
    return {trial.name: trial for trial in trials}


def test_a_deadline_that_on_demand_meets_is_always_met_and_costs_less_than_on_demand() -> None:
    trials = lived(14 * HOUR)

    assert trials["rekindle"].in_time_pct == 100
    assert trials["on_demand"].in_time_pct == 100
    assert 20 < trials["rekindle"].dollars.p50 <= trials["on_demand"].dollars.p50


def test_the_same_seed_gives_the_same_lives() -> None:
    trials = lived(None)

    assert set(trials) == {"spot_only", "on_demand"}
    assert (trials["spot_only"].on_demand_pct, trials["spot_only"].in_time_pct) == (0, None)
    assert trials["spot_only"] == lived(None)["spot_only"]
    assert lived(None)["spot_only"] != lived(None, seed=2)["spot_only"]


@pytest.mark.parametrize(("deadline_h", "most_s"), [(4, 210), (30 * 24, 600)])
def test_minutes_of_work_are_not_rounded_up_to_ticks_of_a_long_job(
    deadline_h: int, most_s: int
) -> None:
    first = replace(option("eastus", 0.0), total_steps=18, recovery_seconds=9.0)

    full = simulate_job([first], {}, deadline_s=deadline_h * HOUR, lives=1, seed=1)[-1]

    assert full.name == "on_demand"
    assert 189 <= full.hours.p50 * HOUR <= most_s


def test_a_short_job_is_no_dearer_with_a_looser_deadline() -> None:
    first = replace(option("eastus", 0.5), total_steps=6, recovery_seconds=8.0)

    def price(hours: float) -> float:
        trials = simulate_job([first], {}, deadline_s=hours * HOUR, lives=5, seed=1)
        return max(trial.dollars.p50 for trial in trials)

    assert price(1) == price(24) == price(30 * 24) == price(365 * 24)


def test_a_deadline_changes_the_moves_and_not_the_capacity() -> None:
    first, second = (
        replace(option(region, 0.5), total_steps=60, recovery_seconds=8.0, duration_p50=600.0)
        for region in ("eastus", "westus")
    )

    def ways(hours: float) -> dict[str, StrategyResult]:
        trials = simulate_job([first, second], {}, deadline_s=hours * HOUR, lives=5, seed=1)
        return {trial.name: trial for trial in trials}

    lived = [ways(hours) for hours in (0.3, 1, 4, 33, 170)]
    dollars = [by_policy["rekindle"].dollars.p50 for by_policy in lived]
    alone = [by_policy["spot_only"] for by_policy in lived]

    assert dollars == sorted(dollars, reverse=True)
    assert dollars[-1] < dollars[0]
    assert {ended.dollars for ended in alone} == {alone[0].dollars}
    assert {ended.unfinished_pct for ended in alone} == {alone[0].unfinished_pct}


def test_a_case_is_the_first_option_in_ticks_and_every_offering_of_its_size() -> None:
    first = replace(option("eastus", 3.0), checkpoint_seconds=1200.0)
    second = replace(option("westus", 1.0), total_steps=99, nodes=3)

    zones = spot_zones([first, second], {second.offering: SEEN})
    case = build_case(first, zones, 15 * HOUR, finest_s=300.0)

    assert (case.tick_s, case.work, case.deadline, case.cold, case.lost) == (300, 120, 180, 2, 2)
    assert [(z.hourly, z.cold_start_s, z.evictions_per_hour, z.holds) for z in zones] == [
        (2.0, 600.0, 0.3, NO_EXPOSURE),
        (3.0, 600.0, 0.1, SEEN),
    ]
    assert shortest_tick(replace(first, total_steps=1)) == 610.0 / 20, "most of it is the start"
    assert case.on_demand is not None
    assert (case.on_demand.hourly, case.on_demand.cold_start_s) == (8.0, 600.0)
