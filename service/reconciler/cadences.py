"""Tells running jobs how often to save: evictions, their price and where they run move meanwhile.

All attempts at once, beside the looks at each: what evictions are to be expected is known of a
place, and thousands of attempts may be there.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db import cadences as rows
from service.db import events, market
from service.db.cadences import Training, Write
from service.db.events import Event
from service.domain import cadence
from service.domain.cadence import Basis, Known, Lived
from service.domain.hazard import BURST_S
from service.domain.market import prior
from service.domain.traces import Place
from trainer.contract import Cadence

CHANGED = "job.cadence_changed"
_AT_ONCE = 200  # attempts in a transaction
_LIVES_S = 300.0  # seconds for which lives of a month are kept
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Hazard:
    """Of one machine somewhere."""

    evictions_per_hour: float  # when nothing special happens
    evicted_s: float | None = None  # since machines were taken there, if it is minutes ago


_ON_DEMAND = _Hazard(evictions_per_hour=0.0)


@dataclass(kw_only=True)
class Cadences:
    """Keeps what all jobs have lived through for some minutes: a month of attempts."""

    engine: AsyncEngine
    hazard_per_hour: float  # of a machine, where Azure has told no eviction rate
    now: Callable[[], datetime]
    _at: datetime | None = field(default=None, init=False)
    _lived: dict[Place, Lived] = field(default_factory=dict, init=False)

    async def run_once(self) -> int:
        """Look once at all; return how many attempts are told something new."""
        now = self.now()
        async with self.engine.connect() as conn:
            training = await rows.training(conn)
            places = set(filter(None, map(rows.spot_place, training)))
            hazards = await self._hazards(conn, places, now) if places else {}
        news = await asyncio.to_thread(_news, training, hazards, now)  # may be thousands
        count = 0
        for begin in range(0, len(news), _AT_ONCE):
            async with self.engine.begin() as conn:
                some = news[begin : begin + _AT_ONCE]
                count += len(await rows.write(conn, some, now))
        return count

    async def _hazards(
        self, conn: AsyncConnection, places: set[Place], now: datetime
    ) -> dict[Place, _Hazard]:
        lived, bands = await self._lives(conn, places, now), await market.bands(conn, places)
        last = await rows.evicted(conn, now - timedelta(seconds=BURST_S))
        return {
            place: _Hazard(
                evictions_per_hour=cadence.evictions_per_hour(
                    prior(bands.get(place), self.hazard_per_hour).per_hour, lived[place]
                ),
                evicted_s=(now - last[place]).total_seconds() if place in last else None,
            )
            for place in places
        }

    async def _lives(
        self, conn: AsyncConnection, places: set[Place], now: datetime
    ) -> Mapping[Place, Lived]:
        """As of the last full five minutes, so that replicas do not contradict each other."""
        at = datetime.fromtimestamp(now.timestamp() // _LIVES_S * _LIVES_S, UTC)
        kept = self._lived if self._at == at else {}
        if new := places - kept.keys():
            found = await rows.lived(conn, new, at)
            kept = kept | {place: found.get(place, Lived()) for place in new}
            self._at, self._lived = at, kept
        return kept


def _news(
    found: Sequence[Row[Any]], hazards: Mapping[Place, _Hazard], now: datetime
) -> list[Write]:
    """What is new for whom; what is wrong with one holds up nobody else."""
    news = []
    for row in found:
        place = rows.spot_place(row)
        try:
            write = _new(rows.parsed(row), hazards[place] if place else _ON_DEMAND, now)
        except Exception:
            log.exception("cadence.not_reckoned", extra={"attempt": row.id})
        else:
            news += [write] if write else []
    return news


def _new(one: Training, hazard: _Hazard, now: datetime) -> Write | None:
    """What is told and said from now on; None: what was."""
    before = one.before
    if before is None:
        return Write(training=one, known=None)
    usual = _usual(one, before, one.machines, hazard)
    told, after, event = cadence.raised(usual, hazard.evicted_s), before, None
    if one.known is None or cadence.moved(before.told, told):
        after = replace(after, told=told, since=now.timestamp())
    place = Place(one.offering.region, one.offering.vm_size)
    whole = cadence.basis(_usual(one, before, one.instances, hazard), one.instances, place)
    if one.tells and cadence.is_news(before, whole, one.cost):
        event = _event(one, before, whole, now, more_often=told != usual)
        after = replace(after, said=whole)
    return None if after == one.known else Write(training=one, known=after, event=event)


def _usual(one: Training, before: Known, machines: int, hazard: _Hazard) -> Cadence:
    """With so many machines."""
    return cadence.usual(
        before,
        machines=machines,
        evictions_per_hour=hazard.evictions_per_hour,
        hourly=float(one.hourly),
        noticed=one.offering.has_metadata,
    )


def _event(one: Training, before: Known, now: Basis, at: datetime, *, more_often: bool) -> Event:
    """That the usual interval has moved."""
    data = {
        "seconds": before.seconds(now.cadence, one.cost),
        "seconds_before": before.seconds(before.said.cadence, one.cost),
        "evictions_per_hour": now.cadence.evictions_per_hour,
        "notices_answered": now.cadence.answered,
    }
    said = cadence.words(before, now, one.cost, more_often=more_often)
    return events.fresh(one.job_id, one.id, at, CHANGED, said, data=data)
