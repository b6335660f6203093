"""When a job that waits for its turn in the quota of Spot cores is likely to be let in. Pure.

Cores come free as our own jobs end, as these are forecast to; what others in the subscription hold
is not known to come back. Whoever is ahead takes its part first, and holds it for as long as its
plan says. Who does not fit is passed by, as `admission.py` has it.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from service.domain.admission import Code, Standing, Want
from service.domain.forecast import ToCome

FORESEEN = 10  # places in the queue; only those are told exactly
MANY = 200  # jobs that hold cores; the ends of more are not looked up
_FOR_CORES = {Code.CORES, Code.GANG}


@dataclass(frozen=True, kw_only=True)
class Holds:
    """A job of ours that holds Spot cores, or for which some are kept."""

    region: str
    cores: int
    ends: ToCome


@dataclass(frozen=True, kw_only=True)
class Asks:
    """A job in the queue."""

    wants: tuple[Want, ...]
    lasts: ToCome


@dataclass(frozen=True, kw_only=True)
class Turn:
    """When it is let in, or why nobody can say."""

    after: ToCome | None
    why: str = ""  # "" where there is a forecast


def is_foreseen(standing: Standing) -> bool:
    """Whether it is worth a look at the jobs that hold what it waits for."""
    return (standing.position or FORESEEN + 1) <= FORESEEN and standing.code in _FOR_CORES


def turn(queue: Sequence[Asks], free: Mapping[str, int], holds: Sequence[Holds]) -> Turn:
    """Of the last in ``queue``, which is in the order of turns; ``free``: cores by region.

    All ends are taken to be early, or late, together: what slows one job slows the others.
    """
    if len(holds) > MANY:
        return Turn(after=None, why="More jobs hold its cores than ends are looked up of.")
    found = [_let_in(queue, free, holds, part) for part in ("p10", "p50", "p90")]
    p10, p50, p90 = found
    if p10 is None or p50 is None or p90 is None:
        why = "Others in the subscription hold what it needs; when they let go is not known."
        return Turn(after=None, why=why)
    return Turn(after=ToCome(p10=min(p10, p50), p50=p50, p90=max(p50, p90)))


def unforeseen(standing: Standing) -> Turn | None:
    """Of a job for which it is not; None while nobody has looked at it yet."""
    if standing.code is Code.LOOK or standing.position is None:
        return None
    if standing.code in _FOR_CORES:
        return Turn(after=None, why=f"Ends are looked up for the first {FORESEEN} in the queue.")
    if standing.code is Code.NEVER:
        return Turn(after=None, why="As things are it will never be let in.")
    return Turn(after=None, why="It is let in once its project holds less.")


def _let_in(
    queue: Sequence[Asks], free: Mapping[str, int], holds: Sequence[Holds], part: str
) -> float | None:
    """Seconds from now; None if it does not happen as long as only what we hold comes free."""
    seconds = attrgetter(part)
    room, waiting, now = dict(free), list(queue), 0.0
    ends = [(seconds(held.ends), held.region, held.cores) for held in holds]
    heapq.heapify(ends)
    while True:
        for asks in list(waiting):
            want = _fitting(asks, room)
            if want is None:
                continue
            if asks is queue[-1]:
                return now
            waiting.remove(asks)
            if want.region in room:
                room[want.region] -= want.cores
                heapq.heappush(ends, (now + seconds(asks.lasts), want.region, want.cores))
        if not ends:
            return None
        now, region, cores = heapq.heappop(ends)
        room[region] = room.get(region, 0) + cores


def _fitting(asks: Asks, room: Mapping[str, int]) -> Want | None:
    """The first region with room; one whose quota is not known is not limited."""
    return next((w for w in asks.wants if w.cores <= room.get(w.region, w.cores)), None)
