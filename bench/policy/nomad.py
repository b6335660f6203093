"""SkyNomad's policy (NSDI'27), a rival.

It maximizes a utility of expected lifetime and price. The value of time rises when the job is
behind schedule. Lifetimes are learned from probes: every two hours each zone is held for a minute.
"""

from bench.policy.rivals import ON_DEMAND, View, Zone, choose_under_pressure, is_pressed
from service.domain.spot.lifetimes import SurvivalCurve

_PROBE_S = 7200.0
_BILLED_S = 60.0
_UNKNOWN_H = 4.0
_THRESHOLD = 0.05  # minimum gain of a move, as a share of the on-demand price


class SkyNomad:
    """The policy of one run, with the results of its probes."""

    def __init__(self) -> None:
        self.up_since: dict[Zone, int] = {}
        self.lifetimes: dict[Zone, list[tuple[float, bool]]] = {}
        self.curves: dict[Zone, SurvivalCurve] = {}
        self.next_probe = 0

    def __call__(self, view: View) -> Zone | None:
        """Choose the zone, on-demand or nothing for this tick."""
        self._probe(view)
        if is_pressed(view):
            return choose_under_pressure(view)
        utility = {zone: self._utility(view, zone) for zone in [*view.available, ON_DEMAND]}
        best = max(utility, key=lambda zone: utility[zone])
        stays = utility[view.held] if view.held is not None else 0.0
        return best if utility[best] > stays + _THRESHOLD * (view.held is not None) else view.held

    def _probe(self, view: View) -> None:
        tick_s = view.world.tick_s
        for zone in range(len(view.world.regions)):
            if zone not in view.available and zone in self.up_since:
                hours = (view.now - self.up_since.pop(zone)) * tick_s / 3600
                self.lifetimes.setdefault(zone, []).append((hours, True))
                self.curves[zone] = SurvivalCurve.of(self.lifetimes[zone])
        if view.now < self.next_probe:
            return
        self.next_probe = view.now + max(1, round(_PROBE_S / tick_s))
        for zone in view.available:
            self.up_since.setdefault(zone, view.now)
            view.probe_cost += view.world.ratio * _BILLED_S / tick_s if zone != view.held else 0.0

    def _utility(self, view: View, zone: Zone) -> float:
        world = view.world
        is_held = zone == view.held
        lifetime = self._expected_lifetime(view, zone)
        useful = 1.0 if is_held else max(0.0, 1 - world.cold / lifetime)
        price = 1.0 if zone == ON_DEMAND else world.ratio
        moved = zone != ON_DEMAND and world.regions[zone] != view.region
        return _value_of_time(view) * useful - price - (world.egress / lifetime if moved else 0.0)

    def _expected_lifetime(self, view: View, zone: Zone) -> float:
        """Return the expected lifetime of a hold in ticks, at most the remaining work."""
        world = view.world
        remaining = world.work - view.done + world.cold
        if zone == ON_DEMAND:
            return max(remaining, 1)
        hours = world.tick_s / 3600
        age = (view.now - self.up_since.get(zone, view.now)) * hours
        curve = self.curves.get(zone)
        residual_hours = curve.mean_residual_life(age, remaining * hours) if curve else _UNKNOWN_H
        return max(min(residual_hours / hours, remaining), 1)


def _value_of_time(view: View) -> float:
    """Return the value of a useful tick in on-demand ticks: 1 on schedule, more when behind."""
    world = view.world
    if view.now == 0 or view.done == 0:
        return 1.0 if view.now == 0 else 2.0
    needed = (world.work - view.done) / max(world.deadline - view.now, 1)
    return needed / (view.done / view.now)
