"""Order offerings of equal price by Azure's Spot placement scores. Pure.

A score is Azure's guess and says nothing of how long machines stay. So it only decides between
offerings of the same price of which we never held any: our own experience counts more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import groupby

from service.domain.placement import offering_choice
from service.domain.placement.capacity_history import APART
from service.domain.spot.age_hazard import NO_EXPOSURE
from service.domain.spot.capacity_traces import SpotPool, spot_pool_of
from service.domain.spot.market import PlacementScore
from service.domain.states import CapacityType

# An older score says nothing; Azure's own are up to 30 minutes old.
SCORE_MAX_AGE = timedelta(minutes=45)
_ORDER = {PlacementScore.HIGH: 0, PlacementScore.MEDIUM: 1, PlacementScore.LOW: 3}
_UNKNOWN = 2
SAME_PRICE = Decimal("0.01")  # of the cheaper one: a difference that is none


@dataclass(frozen=True, kw_only=True)
class ScoreRecord:
    """A placement score, since when Azure reports it, and when it was last read."""

    score: PlacementScore
    machines: int  # that were asked about together
    since: datetime
    seen_at: datetime

    def is_valid_for(self, now: datetime, machines: int) -> bool:
        """Return whether the score applies to this many machines now.

        Where many would be given fewer would be too; where few would not, neither would more.
        """
        low = self.score is PlacementScore.LOW
        covers = machines >= self.machines if low else machines <= self.machines
        return covers and now - self.seen_at <= SCORE_MAX_AGE

    def likely_seconds(self, now: datetime, machines: int) -> float | None:
        """Return since how many seconds a grant is likely; None if it is not."""
        if self.score is not PlacementScore.HIGH or not self.is_valid_for(now, machines):
            return None
        return (now - self.since).total_seconds()


def is_current(score: ScoreRecord | None, machines: int, now: datetime) -> bool:
    """Return whether there is a score that applies to this many machines now."""
    return score is not None and score.is_valid_for(now, machines)


def likely_since(score: ScoreRecord | None, machines: int, now: datetime) -> datetime | None:
    """Return since when a grant is likely; None before Azure has repeated the score."""
    if score is None or score.seen_at - score.since < APART:
        return None
    return score.since if score.likely_seconds(now, machines) is not None else None


def order_by_score(
    states: Sequence[offering_choice.OfferingState],
    scores: Mapping[SpotPool, ScoreRecord],
    machines: int,
    now: datetime,
) -> list[offering_choice.OfferingState]:
    """Return the offerings with better scores first among neighbours of the same price.

    An offering that we have held machines of keeps its position.
    """
    ordered: list[offering_choice.OfferingState] = []
    for _, group in groupby(_number_classes(states), key=lambda pair: pair[0]):
        alike = [state for _, state in group]
        ordered += sorted(alike, key=lambda p: _rank(p, scores, machines, now))
    return ordered


def _number_classes(
    states: Sequence[offering_choice.OfferingState],
) -> list[tuple[int, offering_choice.OfferingState]]:
    """Return each offering with the number of its run of untried ones at one price."""
    numbered: list[tuple[int, offering_choice.OfferingState]] = []
    number, first = 0, None
    for state in states:
        if first is None or not _is_same_class(first, state):
            number, first = number + 1, state
        numbered.append((number, state))
    return numbered


def _is_same_class(
    first: offering_choice.OfferingState, other: offering_choice.OfferingState
) -> bool:
    spot = all(p.offering.capacity_type is CapacityType.SPOT for p in (first, other))
    unknown = all(p.experience.holds == NO_EXPOSURE for p in (first, other))
    size = first.offering.vm_size == other.offering.vm_size
    apart = abs(first.price.hourly - other.price.hourly)
    return spot and unknown and size and apart <= SAME_PRICE * first.price.hourly


def _rank(
    state: offering_choice.OfferingState,
    scores: Mapping[SpotPool, ScoreRecord],
    machines: int,
    now: datetime,
) -> int:
    record = scores.get(spot_pool_of(state.offering))
    return _ORDER[record.score] if record and record.is_valid_for(now, machines) else _UNKNOWN
