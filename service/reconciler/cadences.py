"""Tells running jobs how often to save: evictions, their price and where they run move meanwhile.

All attempts at once, beside the looks at each: what evictions are to be expected is known of a
place, and thousands of attempts may be there.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db import cadences as rows
from service.db import market
from service.db.cadences import Training, Write
from service.db.events import Event
from service.domain import cadence
from service.domain.cadence import Known, Lived
from service.domain.ids import new_id
from service.domain.market import Told, prior
from service.domain.states import CapacityType
from service.domain.traces import Place
from trainer.contract import Cadence

CHANGED = "job.cadence_changed"
_AT_ONCE = 200  # attempts in a transaction


@dataclass(frozen=True, kw_only=True)
class _Hazard:
    """Of one machine somewhere."""

    lived: Lived
    evictions_per_hour: float  # when nothing special happens


_ON_DEMAND = _Hazard(lived=Lived(), evictions_per_hour=0.0)


@dataclass(frozen=True, kw_only=True)
class Cadences:
    """Holds nothing."""

    engine: AsyncEngine
    hazard_per_hour: float  # of a machine, where Azure has told no eviction rate
    now: Callable[[], datetime]

    async def run_once(self) -> int:
        """Look once at all; return how many attempts are told something new."""
        now = self.now()
        async with self.engine.connect() as conn:
            training = await rows.training(conn)
            places = {t.place for t in training if t.offering.capacity_type is CapacityType.SPOT}
            lived = await rows.lived(conn, places, now) if places else {}
            bands = await market.bands(conn, places) if places else {}
        hazards = {
            place: self._hazard(lived.get(place, Lived()), bands.get(place)) for place in places
        }
        news = await asyncio.to_thread(_news, training, hazards, now)  # may be thousands
        count = 0
        for begin in range(0, len(news), _AT_ONCE):
            async with self.engine.begin() as conn:
                some = news[begin : begin + _AT_ONCE]
                count += len(await rows.write(conn, some, now))
        return count

    def _hazard(self, lived: Lived, told: Told | None) -> _Hazard:
        believed = prior(told, self.hazard_per_hour).per_hour
        return _Hazard(lived=lived, evictions_per_hour=cadence.evictions_per_hour(believed, lived))


def _news(training: list[Training], hazards: Mapping[Place, _Hazard], now: datetime) -> list[Write]:
    """What is new for whom."""
    news = []
    for one in training:
        spot = one.offering.capacity_type is CapacityType.SPOT
        before = one.known or one.first
        if before is None:
            news.append(Write(training=one, known=None))
        elif write := _renewed(one, before, hazards[one.place] if spot else _ON_DEMAND, now):
            news.append(write)
    return news


def _renewed(one: Training, before: Known, hazard: _Hazard, now: datetime) -> Write | None:
    """What is told and said from now on; None: what was."""
    usual = cadence.usual(
        before,
        machines=one.machines,
        evictions_per_hour=hazard.evictions_per_hour,
        hourly=float(one.hourly),
    )
    told, after, event = cadence.raised(usual, hazard.lived), before, None
    if one.known is None or cadence.moved(before.told, told):
        after = replace(after, told=told, since=now.timestamp())
    if one.tells and cadence.is_news(before, usual, one.cost):
        after, event = replace(after, said=usual), _event(one, before, (usual, told), now)
    return None if after == one.known else Write(training=one, known=after, event=event)


def _event(one: Training, before: Known, cadences: tuple[Cadence, Cadence], now: datetime) -> Event:
    """Of the usual one, and the one that is told now."""
    usual, told = cadences
    return Event(
        id=new_id("ftevent", now),
        job_id=one.job_id,
        attempt_id=one.id,
        at=now,
        level="info",
        code=CHANGED,
        message=cadence.words(before, usual, told, one.cost),
        data={
            "seconds": before.seconds(usual, one.cost),
            "seconds_before": before.seconds(before.said, one.cost),
            "evictions_per_hour": usual.evictions_per_hour,
            "notices_answered": usual.answered,
        },
    )
