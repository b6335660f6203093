"""The production policy of `service.domain.placement.policy`, on recorded capacity."""

from dataclasses import replace

from bench.policy.world import Capacity, ReplayWorld, Result
from service.domain.cloud.fleet import Offering
from service.domain.placement.policy_state import Candidate, MoveMode
from service.domain.simulation.simulator import (
    AvailabilitySignals,
    MarketExperience,
    SimulationCase,
    simulate,
)
from service.domain.states import CapacityType

HOUR = 3600.0
DEFAULT_SIGNALS = AvailabilitySignals()


def empty_experience(world: ReplayWorld) -> MarketExperience:
    """Return an empty market experience."""
    return MarketExperience.empty(len(world.regions))


def play(
    world: ReplayWorld,
    capacity: Capacity,
    begin: int,
    experience: MarketExperience,
    moves: MoveMode = MoveMode.LEAVES_FIRST,
    signals: AvailabilitySignals = DEFAULT_SIGNALS,
) -> Result:
    """Simulate one run and add its observations to ``experience``."""
    outcome = simulate(
        replace(_case(world), moves=moves, signals=signals), capacity, begin, experience
    )
    return Result(
        cost=outcome.dollars * HOUR / world.tick_s,
        finished=outcome.finished,
        spot=outcome.spot,
        on_demand=outcome.on_demand,
        evictions=outcome.evictions,
    )


def _case(world: ReplayWorld) -> SimulationCase:
    zones = tuple(
        Candidate(
            offering=_offering(region, f"zone-{zone}", CapacityType.SPOT),
            hourly=world.ratio,
            cold_start_s=world.cold * world.tick_s,
            move_dollars=world.egress * world.tick_s / HOUR,
        )
        for zone, region in enumerate(world.regions)
    )
    paid = Candidate(
        offering=_offering(world.regions[0], "any", CapacityType.ON_DEMAND),
        hourly=1.0,
        cold_start_s=world.cold * world.tick_s,
    )
    return SimulationCase(
        tick_s=world.tick_s,
        work=world.work,
        deadline=world.deadline,
        cold=world.cold,
        lost=world.lost,
        zones=zones,
        on_demand=paid,
    )


def _offering(region: str, vm_size: str, capacity_type: CapacityType) -> Offering:
    return Offering(region=region, vm_size=vm_size, capacity_type=capacity_type)
