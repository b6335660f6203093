"""Azure's word on whether Spot machines would be given now, and what it is good for. Pure.

A score says nothing of how long machines stay, and is Azure's guess. So it only decides between
offerings that cost the same and where nothing of ours was ever held: own experience says more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import groupby

from service.domain.placement import offering_choice
from service.domain.spot.age_hazard import NOTHING
from service.domain.spot.capacity_traces import Place, place_of
from service.domain.spot.market import Score
from service.domain.states import CapacityType

FRESH = timedelta(minutes=45)  # an older score says nothing; Azure's own are up to 30 minutes old
_ORDER = {Score.HIGH: 0, Score.MEDIUM: 1, Score.LOW: 3}
_UNKNOWN = 2
SAME_PRICE = Decimal("0.01")  # of the cheaper one: a difference that is none


@dataclass(frozen=True, kw_only=True)
class Scored:
    """What Azure said of a place, since when it has said so, and when it last did."""

    score: Score
    machines: int  # that were asked about together
    since: datetime
    seen_at: datetime

    def holds(self, now: datetime, machines: int) -> bool:
        """Whether it says anything of so many machines now.

        Where many would be given fewer would be too; where few would not, neither would more.
        """
        low = self.score is Score.LOW
        covers = machines >= self.machines if low else machines <= self.machines
        return covers and now - self.seen_at <= FRESH

    def likely_s(self, now: datetime, machines: int) -> float | None:
        """For so many seconds it has been likely that they would be given; None: it is not."""
        if self.score is not Score.HIGH or not self.holds(now, machines):
            return None
        return (now - self.since).total_seconds()


def by_score(
    places: Sequence[offering_choice.Place],
    scores: Mapping[Place, Scored],
    machines: int,
    now: datetime,
) -> list[offering_choice.Place]:
    """The places, those of one price better scored first; all else stays where it was.

    Only neighbours change places, and never one that we have held machines at.
    """
    ordered: list[offering_choice.Place] = []
    for _, group in groupby(_classed(places), key=lambda pair: pair[0]):
        alike = [place for _, place in group]
        ordered += sorted(alike, key=lambda p: _rank(p, scores, machines, now))
    return ordered


def _classed(places: Sequence[offering_choice.Place]) -> list[tuple[int, offering_choice.Place]]:
    """Each place with the number of its class: a run of unknown ones of one price."""
    found: list[tuple[int, offering_choice.Place]] = []
    number, first = 0, None
    for place in places:
        if first is None or not _alike(first, place):
            number, first = number + 1, place
        found.append((number, place))
    return found


def _alike(first: offering_choice.Place, other: offering_choice.Place) -> bool:
    spot = all(p.offering.capacity_type is CapacityType.SPOT for p in (first, other))
    unknown = all(p.lived.holds == NOTHING for p in (first, other))
    size = first.offering.vm_size == other.offering.vm_size
    apart = abs(first.price.hourly - other.price.hourly)
    return spot and unknown and size and apart <= SAME_PRICE * first.price.hourly


def _rank(
    place: offering_choice.Place, scores: Mapping[Place, Scored], machines: int, now: datetime
) -> int:
    told = scores.get(place_of(place.offering))
    return _ORDER[told.score] if told and told.holds(now, machines) else _UNKNOWN
