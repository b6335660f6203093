"""Candidates, policy states and capacity for the tests of the policy."""

from service.domain.cloud.fleet import Offering
from service.domain.placement.policy_state import Candidate, CurrentHold, PolicyState
from service.domain.simulation.simulator import (
    AvailabilitySignals,
    CapacityByTick,
    MarketExperience,
    SimulatedRun,
    SimulationCase,
    simulate,
)
from service.domain.states import CapacityType

HOUR = 3600.0
TICK_S = 300.0
RIGHT = AvailabilitySignals(true_positive_rate=1.0, false_positive_rate=0.0)


def spot(region: str = "eastus", hourly: float = 0.3, **changes: object) -> Candidate:
    """Return a Spot candidate, priced in units of an hour on demand."""
    offering = Offering(region=region, vm_size="size", capacity_type=CapacityType.SPOT)
    return Candidate(**{"offering": offering, "hourly": hourly, "cold_start_s": 600.0} | changes)  # type: ignore[arg-type] # by name


def paid(**changes: object) -> Candidate:
    """Return a candidate of the same machines on demand, at 1 per hour."""
    offering = Offering(region="eastus", vm_size="size", capacity_type=CapacityType.ON_DEMAND)
    return Candidate(**{"offering": offering, "hourly": 1.0, "cold_start_s": 600.0} | changes)  # type: ignore[arg-type] # by name


def policy_state(**changes: object) -> PolicyState:
    """Ten hours of work, fifteen to go, nothing held."""
    usual: dict[str, object] = {
        "work_s": 10 * HOUR,
        "left_s": 15 * HOUR,
        "candidates": (spot(), paid()),
    }
    return PolicyState(**usual | changes)  # type: ignore[arg-type] # by name


def hold(candidate: Candidate, age_s: float = HOUR) -> CurrentHold:
    """Return a warm hold on the candidate's machines."""
    return CurrentHold(key=candidate.key, age_s=age_s)


def life(
    capacity: CapacityByTick,
    *,
    work: int,
    deadline: int | None,
    cold: int,
    lost: int = 0,
    signals: AvailabilitySignals = RIGHT,
    experience: MarketExperience | None = None,
) -> SimulatedRun:
    """One life in ticks of five minutes, begun knowing nothing; adds to ``experience``."""
    zones = tuple(spot(f"region-{z}", cold_start_s=cold * TICK_S) for z in range(len(capacity)))
    case = SimulationCase(
        tick_s=TICK_S,
        work=work,
        deadline=deadline,
        cold=cold,
        lost=lost,
        zones=zones,
        on_demand=paid(cold_start_s=cold * TICK_S),
        signals=signals,
    )
    return simulate(case, capacity, 0, experience or MarketExperience.empty(len(zones)))
