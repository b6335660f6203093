"""Published rival policies, simulated tick by tick.

A rival sees the capacity of every zone at each tick, as its paper assumes. The production policy
sees only the answers to its requests (`service.domain.simulation.simulator`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from bench.policy.world import Capacity, ReplayWorld, Result

Zone = int
ON_DEMAND = -1


@dataclass(kw_only=True)
class View:
    """State of the run that a rival sees."""

    world: ReplayWorld
    now: int = 0
    done: int = 0
    held: Zone | None = None
    cold: int = 0
    available: list[Zone] = field(default_factory=list)
    last: Zone | None = None
    region: str = ""
    probe_cost: float = 0.0  # cost of probes, in addition to the job's


Policy = Callable[[View], Zone | None]


def play(policy: Policy, world: ReplayWorld, capacity: Capacity, begin: int) -> Result:
    """Simulate one run until its work is done or the trace ends."""
    view = View(world=world, region=world.regions[0])
    end = min(len(zone) for zone in capacity)
    result = Result()
    while view.done < world.work and begin + view.now < end:
        _evict(view, capacity, begin, result)
        _move(view, policy(view), result)
        _tick(view, result)
    if view.done >= world.work:
        result.finished = view.now
    result.cost += view.probe_cost
    return result


def _evict(view: View, capacity: Capacity, begin: int, result: Result) -> None:
    at = begin + view.now
    view.available = [z for z, zone in enumerate(capacity) if zone[at]]
    if view.held is not None and view.held >= 0 and view.held not in view.available:
        result.evictions += 1
        if view.cold == 0:
            view.done = max(0, view.done - view.world.lost)
        view.last, view.held = view.held, None


def _move(view: View, zone: Zone | None, result: Result) -> None:
    if zone == view.held:
        return
    view.held = zone
    if zone is None:
        return
    view.cold = view.world.cold
    if zone >= 0 and view.world.regions[zone] != view.region:
        view.region = view.world.regions[zone]
        result.cost += view.world.egress


def _tick(view: View, result: Result) -> None:
    if view.held is not None:
        paid = view.held == ON_DEMAND
        result.cost += 1.0 if paid else view.world.ratio
        result.on_demand += paid
        result.spot += not paid
        if view.cold > 0:
            view.cold -= 1
        else:
            view.done += 1
    view.now += 1


def on_demand(_view: View) -> Zone | None:
    """Choose on-demand from the start."""
    return ON_DEMAND


def spot_only(view: View) -> Zone | None:
    """Choose Spot only, as SkyPilot's managed Spot jobs do by default; ignore the deadline."""
    return _pick_spot(view)


def greedy(view: View) -> Zone | None:
    """Choose Spot while it is available, and on-demand when the deadline requires it."""
    if view.held == ON_DEMAND:
        return ON_DEMAND
    return choose_under_pressure(view) if is_pressed(view) else _pick_spot(view)


def uniform_progress(view: View) -> Zone | None:
    """Choose on-demand when behind a linear schedule to the deadline ("Can't Be Late", NSDI'24)."""
    world = view.world
    if is_pressed(view):
        return choose_under_pressure(view)
    if view.held == ON_DEMAND:
        is_ahead = view.done > (view.now + 2 * world.cold) * world.work / world.deadline
        return _pick_spot(view) if is_ahead and view.available else ON_DEMAND
    zone = _pick_spot(view)
    is_behind = view.done < view.now * world.work / world.deadline
    return zone if zone is not None or not is_behind else ON_DEMAND


def _pick_spot(view: View) -> Zone | None:
    if view.held in view.available:
        return view.held
    return view.available[0] if view.available else None


def is_pressed(view: View) -> bool:
    """Return whether the remaining time is less than the work, one start and one loss."""
    world = view.world
    return world.deadline - view.now <= world.work - view.done + world.cold + world.lost + 1


def choose_under_pressure(view: View) -> Zone:
    """Return the choice under deadline pressure: keep a warm Spot zone, otherwise on-demand."""
    keeps = view.held is not None and view.held in view.available and view.cold == 0
    return view.held if keeps and view.held is not None else ON_DEMAND


POLICIES: dict[str, Policy] = {
    "on_demand": on_demand,
    "spot_only": spot_only,
    "greedy": greedy,
    "uniform_progress": uniform_progress,
}
