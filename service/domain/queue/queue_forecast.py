"""When a job that waits for its turn in the quota of Spot cores is likely to be let in. Pure.

Cores come free as our own jobs end, as these are forecast to; what others in the subscription hold
is not known to come back. Whoever is ahead takes its part first, and holds it for as long as its
plan says. Who does not fit is passed by until it has waited for RESERVES: from then on the region
that lacks least is kept for it, as `admission.py` has it. The order of turns is taken to stay.
"""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from service.domain.planning.forecast import ToCome
from service.domain.queue.admission import RESERVES, Code, Standing, Want

FORESEEN = 10  # places in the queue; only those are told exactly
MANY = 200  # jobs that hold cores; the ends of more are not looked up
FOR_CORES = (Code.CORES, Code.GANG)
_QUARTER = 900.0  # seconds: other projects' ends are told no more finely


@dataclass(frozen=True, kw_only=True)
class Holds:
    """A job of ours that holds Spot cores, or for which some are kept."""

    project_id: str
    region: str
    cores: int
    ends: ToCome


@dataclass(frozen=True, kw_only=True)
class Asks:
    """A job in the queue."""

    project_id: str
    since: datetime
    wants: tuple[Want, ...]
    lasts: ToCome


@dataclass(frozen=True, kw_only=True)
class Turn:
    """When it is let in, or why nobody can say."""

    after: ToCome | None
    why: str = ""  # "" where there is a forecast


TOO_MANY = Turn(after=None, why="More jobs hold its cores than ends are looked up of.")
_LARGER = Turn(after=None, why="A job that waits longer goes first; when is not known.")


def is_foreseen(standing: Standing) -> bool:
    """Whether it is worth a look at the jobs that hold what it waits for."""
    return (standing.position or FORESEEN + 1) <= FORESEEN and standing.code in FOR_CORES


def turn(
    queue: Sequence[Asks],
    free: Mapping[str, int],
    holds: Sequence[Holds],
    now: datetime,
    *,
    passed_over: bool = False,
) -> Turn:
    """Of the last in ``queue``, which is in the order of turns; ``free``: cores by region.

    All ends are taken to be early, or late, together: what slows one job slows the others. To a
    quarter of an hour where one of them is another project's. ``passed_over``: it was refused
    though it fits; for whom the room is kept may be told a place after it.
    """
    found = [_let_in(queue, free, holds, now, part) for part in ("p10", "p50", "p90")]
    p10, p50, p90 = found
    if p10 is None or p50 is None or p90 is None:
        why = "Others in the subscription hold what it needs; when they let go is not known."
        return Turn(after=None, why=why)
    if passed_over and p50 <= 0:
        return _LARGER
    after = ToCome(p10=min(p10, p50), p50=p50, p90=max(p50, p90))
    whose = {asks.project_id for asks in queue} | {held.project_id for held in holds}
    return Turn(after=_by_quarters(after, now) if len(whose) > 1 else after)


def unforeseen(standing: Standing) -> Turn | None:
    """Of a job for which it is not; None while nobody has looked at it yet."""
    if standing.code is Code.LOOK or standing.position is None:
        return None
    if standing.code in FOR_CORES:
        return Turn(after=None, why=f"Ends are looked up for the first {FORESEEN} in the queue.")
    if standing.code is Code.NEVER:
        return Turn(after=None, why="As things are it will never be let in.")
    return Turn(after=None, why="It is let in once its project holds less.")


def _let_in(
    queue: Sequence[Asks],
    free: Mapping[str, int],
    holds: Sequence[Holds],
    now: datetime,
    part: str,
) -> float | None:
    """Seconds from now; None if it does not happen as long as only what we hold comes free."""
    seconds = attrgetter(part)
    room, waiting, passed = dict(free), list(queue), 0.0
    most = Counter(room)  # that can ever be free
    for held in holds:
        most[held.region] += held.cores
    ends = [(seconds(held.ends), held.region, held.cores) for held in holds]
    heapq.heapify(ends)
    while True:
        for asks, want in _round(waiting, room, most, now, passed):
            if asks is queue[-1]:
                return passed
            waiting.remove(asks)
            if want.region in room:
                heapq.heappush(ends, (passed + seconds(asks.lasts), want.region, want.cores))
        if not ends:
            return None
        passed, region, cores = heapq.heappop(ends)
        room[region] = room.get(region, 0) + cores


def _round(
    waiting: Sequence[Asks],
    room: dict[str, int],
    most: Mapping[str, int],
    now: datetime,
    passed: float,
) -> list[tuple[Asks, Want]]:
    """Who is let in so many seconds from now, and where; it is taken out of ``room``."""
    found, kept = [], set[str]()
    for asks in waiting:
        if want := _fitting(asks, room, kept):
            found.append((asks, want))
            if want.region in room:
                room[want.region] -= want.cores
        elif (now - asks.since).total_seconds() + passed >= RESERVES.total_seconds():
            kept |= _nearest(asks, room, most, kept)
    return found


def _fitting(asks: Asks, room: Mapping[str, int], kept: AbstractSet[str]) -> Want | None:
    """The first region with room that is not kept; one whose quota is not known is not limited."""
    for want in asks.wants:
        if not want.cores or want.region not in room:
            return want
        if want.cores <= room[want.region] and want.region not in kept:
            return want
    return None


def _nearest(
    asks: Asks, room: Mapping[str, int], most: Mapping[str, int], kept: AbstractSet[str]
) -> set[str]:
    """The region that lacks the fewest cores, of those that can ever have enough; none, or one."""
    open_ = [
        (want.cores - room[want.region], want.region)
        for want in asks.wants
        if want.region not in kept and want.cores <= most[want.region]
    ]
    return {min(open_)[1]} if open_ else set()


def _by_quarters(after: ToCome, now: datetime) -> ToCome:
    """The same moments, each the next full quarter of an hour: looking often tells no more."""
    at = now.timestamp()
    p10, p50, p90 = (
        -(-(at + seconds) // _QUARTER) * _QUARTER - at
        for seconds in (after.p10, after.p50, after.p90)
    )
    return ToCome(p10=p10, p50=p50, p90=p90)
