"""The offline optimum: the minimum cost of a job with full knowledge of the future capacity.

It is a dynamic program, backwards over ticks. With this knowledge a job saves right before each
eviction and never loses work, so no online policy can reach this limit.
"""

import numpy as np
from numpy.typing import NDArray

from bench.policy.world import Capacity, ReplayWorld

_NEVER = 1e9
Costs = NDArray[np.float64]


def optimum(world: ReplayWorld, capacity: Capacity, begin: int) -> float:
    """Return the minimum cost to finish by the deadline, in on-demand ticks."""
    best = _Backwards(world)
    for tick in range(world.deadline - 1, -1, -1):
        best.step([bool(zone[begin + tick]) for zone in capacity])
    return float(best.idle[best.home][0])


class _Backwards:
    """Cost-to-go by work done.

    There is one array per region without machines, and one per mode and start-up ticks left with
    machines.
    """

    def __init__(self, world: ReplayWorld) -> None:
        self.world = world
        regions = sorted(set(world.regions)) if world.egress > 0 else [""]
        where = [regions.index(r) if world.egress > 0 else 0 for r in world.regions]
        self.home = where[0]
        zones: list[tuple[int | None, int]] = list(enumerate(where))
        self.modes = [*zones, *((None, region) for region in range(len(regions)))]
        done = np.full(world.work + 1, _NEVER)
        done[-1] = 0.0
        self.idle = [done.copy() for _ in regions]
        self.held = [[done.copy() for _ in range(world.cold + 1)] for _ in self.modes]

    def step(self, granted: list[bool]) -> None:
        """Move one tick back in time."""
        up = [zone is None or granted[zone] for zone, _ in self.modes]
        idle = [self._idle_costs(region, up) for region in range(len(self.idle))]
        held_costs = [
            self._held_costs(m, idle[region]) if up[m] else [idle[region]] * (self.world.cold + 1)
            for m, (_, region) in enumerate(self.modes)
        ]
        self.idle, self.held = idle, held_costs

    def _idle_costs(self, region: int, up: list[bool]) -> Costs:
        best = self.idle[region].copy()
        for m, (zone, zone_region) in enumerate(self.modes):
            if up[m] and (zone is not None or zone_region == region):
                moved = self.world.egress if zone_region != region else 0.0
                np.minimum(best, moved + self._cost_to_go(m, self.world.cold), out=best)
        best[-1] = 0.0
        return best

    def _held_costs(self, mode: int, leave: Costs) -> list[Costs]:
        rows = [np.minimum(leave, self._cost_to_go(mode, c)) for c in range(self.world.cold + 1)]
        for row in rows:
            row[-1] = 0.0
        return rows

    def _cost_to_go(self, mode: int, cold: int) -> Costs:
        """Return the cost-to-go with one more tick in this mode, ``cold`` ticks from ready."""
        price = 1.0 if self.modes[mode][0] is None else self.world.ratio
        if cold > 0:
            return price + self.held[mode][cold - 1]
        onward = np.full(self.world.work + 1, _NEVER)
        onward[:-1] = price + self.held[mode][0][1:]
        return onward
