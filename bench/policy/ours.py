"""The production policy in a trace's weather: what `service.domain.placement.policy` chooses."""

from dataclasses import replace

from bench.policy.world import Result, Weather, World
from service.domain.cloud.fleet import Offering
from service.domain.placement.policy_state import Candidate, Moves
from service.domain.simulation.simulator import Case, Experience, Signs, live
from service.domain.states import CapacityType

HOUR = 3600.0
USUAL = Signs()


def fresh(world: World) -> Experience:
    """Nothing seen yet."""
    return Experience.none(len(world.regions))


def play(
    world: World,
    weather: Weather,
    begin: int,
    seen: Experience,
    moves: Moves = Moves.LEAVES_FIRST,
    signs: Signs = USUAL,
) -> Result:
    """One life, which adds to what was seen; as production does unless ``moves`` says otherwise."""
    life = live(replace(_case(world), moves=moves, signs=signs), weather, begin, seen)
    return Result(
        cost=life.dollars * HOUR / world.tick_s,
        finished=life.finished,
        spot=life.spot,
        on_demand=life.on_demand,
        evictions=life.evictions,
    )


def _case(world: World) -> Case:
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
    return Case(
        tick_s=world.tick_s,
        work=world.work,
        deadline=world.deadline,
        cold=world.cold,
        lost=world.lost,
        zones=zones,
        on_demand=paid,
    )


def _offering(region: str, vm_size: str, bought: CapacityType) -> Offering:
    return Offering(region=region, vm_size=vm_size, capacity_type=bought)
