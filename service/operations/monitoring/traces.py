"""Capacity traces: what the service's own attempts observed of Spot capacity."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.spot import capacity_observations
from service.domain.spot.capacity_traces import (
    CapacitySample,
    CapacityTrace,
    HeldMachine,
    SpotPool,
    TraceWindow,
    build_trace,
)


@dataclass(frozen=True, kw_only=True)
class ObservedCapacity:
    """The rows of a window; traces are computed from them after the connection is released."""

    window: TraceWindow
    held: Mapping[SpotPool, Sequence[HeldMachine]]
    sights: Mapping[SpotPool, Sequence[CapacitySample]]

    def traces(self, wanted: Sequence[SpotPool]) -> list[CapacityTrace]:
        """Return one trace for each place with data, in this order; takes a while."""
        made = (
            build_trace(place, self.window, self.held.get(place, ()), self.sights.get(place, ()))
            for place in wanted
        )
        return [one for one in made if one is not None]


async def read_capacity(
    conn: AsyncConnection, places: Collection[SpotPool], window: TraceWindow
) -> ObservedCapacity:
    """Read what attempts observed of these places in this window."""
    if not places:
        return ObservedCapacity(window=window, held={}, sights={})
    until = window.begins + window.ticks * window.gap
    held = await capacity_observations.held_machines(conn, places, window.begins, until)
    sights = await capacity_observations.observations(conn, places, window.begins, until)
    return ObservedCapacity(window=window, held=held, sights=sights)
