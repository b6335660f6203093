"""What a job would have cost at each hour of the last weeks: its plan in recorded capacity."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import thread_time

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db import market
from service.db.traces import Wanted
from service.domain.capacity_calendar import CapacityCalendar, TooMuch, calendar, elsewhere
from service.domain.errors import InvalidRequest
from service.domain.market import PricePoint
from service.domain.option import Option
from service.domain.states import CapacityType
from service.domain.traces import GAP, Place, Trace, Window, assumed, place_of
from service.operations import traces
from service.operations.traces import Seen

Recorded = tuple[Sequence[Option], Sequence[Trace]]
Prices = Mapping[Place, Sequence[PricePoint]]


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a project's attempts saw of the plan's Spot offerings, and what Azure told of them."""

    options: Sequence[Option]
    places: Sequence[Place]
    seen: Seen
    prices: Prices

    def traces(self) -> Recorded:
        """At the prices that Azure told; where it told none, those that were billed.

        Where attempts saw nothing at all, capacity is assumed and only prices are recorded. The
        machines held are a lower bound: where none was ever refused, they count as enough.
        """
        nodes = max(option.nodes for option in self.options)
        seen = self.seen.traces(self.places)
        found = [one if 0 in one.counts else one.at_least(nodes) for one in seen]
        if not found:
            found = [assumed(place, self.seen.window, nodes) for place in self.places]
        return self.options, [one.at_prices(self.prices.get(one.place, ())) for one in found]


async def recorded(
    conn: AsyncConnection, project_id: str, options: Sequence[Option], weeks: int, now: datetime
) -> Record:
    """Of this project alone: what others saw tells when they ran (ADR 0040)."""
    spot = [o.offering for o in options if o.offering.capacity_type is CapacityType.SPOT]
    places = list(dict.fromkeys(map(place_of, spot)))
    lasts = timedelta(weeks=weeks)
    window = Window(begins=now - lasts, ticks=int(lasts / GAP))
    wanted = Wanted(places=places, project_id=project_id)
    seen = await traces.seen(conn, wanted, window)
    told = await market.prices(conn, places, window.begins, now)
    return Record(options=options, places=places, seen=seen, prices=told)


def given(options: Sequence[Option], named: Mapping[str, Trace]) -> Recorded:
    """Traces that the user brought: those of the plan's places, or else all of them."""
    places = {(o.offering.region, o.offering.vm_size) for o in options}
    own = [trace for trace in named.values() if trace.place in places]
    return (options, own) if own else elsewhere(options[0], named)


def lived(known: Record | Recorded, deadline_s: float | None) -> CapacityCalendar:
    """The calendar; some seconds of computing. Raises InvalidRequest without Spot offerings."""
    options, brought = known.traces() if isinstance(known, Record) else known
    try:
        found = calendar(options, brought, deadline_s, thread_time)
    except TooMuch as error:
        raise InvalidRequest(str(error), code="too_much_data") from error
    if found is None:
        raise InvalidRequest(
            "The plan of this job has no Spot machines, and a calendar shows Spot capacity by the "
            "hour. Allow Spot in REKINDLE_OFFERINGS, or name a job that has Spot offerings.",
            code="no_spot",
        )
    return found
