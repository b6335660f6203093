"""What our own attempts saw of Spot capacity, as traces."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.spot import capacity_observations
from service.domain.spot.capacity_traces import Held, Place, Sight, Trace, Window, trace


@dataclass(frozen=True, kw_only=True)
class Seen:
    """As it was read; traces are made of it when no connection is held for them."""

    window: Window
    held: Mapping[Place, Sequence[Held]]
    sights: Mapping[Place, Sequence[Sight]]

    def traces(self, wanted: Sequence[Place]) -> list[Trace]:
        """One of each place that anything is known of, in this order; computes for a while."""
        made = (
            trace(place, self.window, self.held.get(place, ()), self.sights.get(place, ()))
            for place in wanted
        )
        return [one for one in made if one is not None]


async def seen(conn: AsyncConnection, places: Collection[Place], window: Window) -> Seen:
    """Whatever attempts knew of these places in this time."""
    if not places:
        return Seen(window=window, held={}, sights={})
    until = window.begins + window.ticks * window.gap
    held = await capacity_observations.held(conn, places, window.begins, until)
    sights = await capacity_observations.sights(conn, places, window.begins, until)
    return Seen(window=window, held=held, sights=sights)
