"""Forecast when a job that waits for Spot cores is likely to be admitted. Pure.

Cores become free as our own jobs end, by their forecasts; cores held by others in the subscription
are assumed to stay held. Jobs ahead take their part first, and hold it for as long as their plan
says. A job that does not fit is skipped until it has waited for RESERVATION_DELAY: from then on the
region that lacks the fewest cores is reserved for it, as in `admission.py`. The order of the queue
is assumed to stay.
"""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from service.domain.planning.forecast import RemainingTime
from service.domain.queue.admission import (
    RESERVATION_DELAY,
    QueueStanding,
    RegionRequest,
    WaitReason,
)

MAX_POSITION = 10  # of the queue; only jobs up to it get a forecast
MAX_HOLDS = 200  # jobs that hold cores; the ends of more are not looked up
CORE_REASONS = (WaitReason.CORES, WaitReason.GANG)
_QUARTER = 900.0  # seconds: resolution of forecasts that other projects take part in


@dataclass(frozen=True, kw_only=True)
class CoreHold:
    """A job of ours that holds Spot cores, or for which some are reserved."""

    project_id: str
    region: str
    cores: int
    ends: RemainingTime


@dataclass(frozen=True, kw_only=True)
class QueueEntry:
    """A job in the queue."""

    project_id: str
    since: datetime
    wants: tuple[RegionRequest, ...]
    duration: RemainingTime


@dataclass(frozen=True, kw_only=True)
class AdmissionForecast:
    """When a job is admitted, or why that is unknown."""

    after: RemainingTime | None
    why: str = ""  # "" where there is a forecast


TOO_MANY = AdmissionForecast(
    after=None, why="Too many jobs hold its cores to forecast when they end."
)
_LARGER = AdmissionForecast(
    after=None, why="A job that has waited longer goes first; its start time is unknown."
)


def is_forecastable(standing: QueueStanding) -> bool:
    """Return whether to look up the jobs that hold what this one waits for."""
    return (standing.position or MAX_POSITION + 1) <= MAX_POSITION and standing.code in CORE_REASONS


def forecast_admission(
    queue: Sequence[QueueEntry],
    free: Mapping[str, int],
    holds: Sequence[CoreHold],
    now: datetime,
    *,
    passed_over: bool = False,
) -> AdmissionForecast:
    """Forecast the admission of the last entry of ``queue``, which is in queue order.

    ``free``: cores by region. All ends are taken to be early, or late, together: what slows one job
    slows the others. Times are rounded up to a quarter of an hour where jobs of several projects
    take part. ``passed_over``: the job was refused although it fits, because capacity is reserved
    for a job that may have a later position.
    """
    seconds = [
        _seconds_to_admission(queue, free, holds, now, percentile)
        for percentile in ("p10", "p50", "p90")
    ]
    p10, p50, p90 = seconds
    if p10 is None or p50 is None or p90 is None:
        why = "Others in the subscription hold its cores; when they release them is unknown."
        return AdmissionForecast(after=None, why=why)
    if passed_over and p50 <= 0:
        return _LARGER
    after = RemainingTime(p10=min(p10, p50), p50=p50, p90=max(p50, p90))
    project_ids = {entry.project_id for entry in queue} | {hold.project_id for hold in holds}
    return AdmissionForecast(
        after=_round_to_quarters(after, now) if len(project_ids) > 1 else after
    )


def explain_no_forecast(standing: QueueStanding) -> AdmissionForecast | None:
    """Return why a job has no forecast; None before its first admission round."""
    if standing.code is WaitReason.PENDING or standing.position is None:
        return None
    if standing.code in CORE_REASONS:
        return AdmissionForecast(
            after=None, why=f"Only the first {MAX_POSITION} jobs in the queue have a forecast."
        )
    if standing.code is WaitReason.NEVER:
        return AdmissionForecast(after=None, why="It cannot be admitted under the present quotas.")
    return AdmissionForecast(
        after=None, why="It is admitted once its project uses less of its quota."
    )


def _seconds_to_admission(
    queue: Sequence[QueueEntry],
    free: Mapping[str, int],
    holds: Sequence[CoreHold],
    now: datetime,
    percentile: str,
) -> float | None:
    """Return seconds to admission; None if only cores of others would suffice."""
    seconds = attrgetter(percentile)
    room, waiting, elapsed = dict(free), list(queue), 0.0
    most = Counter(room)  # that can ever be free
    for hold in holds:
        most[hold.region] += hold.cores
    ends = [(seconds(hold.ends), hold.region, hold.cores) for hold in holds]
    heapq.heapify(ends)
    while True:
        for entry, request in _admit_round(waiting, room, most, now, elapsed):
            if entry is queue[-1]:
                return elapsed
            waiting.remove(entry)
            if request.region in room:
                heapq.heappush(
                    ends, (elapsed + seconds(entry.duration), request.region, request.cores)
                )
        if not ends:
            return None
        elapsed, region, cores = heapq.heappop(ends)
        room[region] = room.get(region, 0) + cores


def _admit_round(
    waiting: Sequence[QueueEntry],
    room: dict[str, int],
    most: Mapping[str, int],
    now: datetime,
    elapsed: float,
) -> list[tuple[QueueEntry, RegionRequest]]:
    """Return the entries admitted after ``elapsed`` seconds; takes their cores from ``room``."""
    admitted, reserved = [], set[str]()
    for entry in waiting:
        if request := _first_fitting_region(entry, room, reserved):
            admitted.append((entry, request))
            if request.region in room:
                room[request.region] -= request.cores
        elif (now - entry.since).total_seconds() + elapsed >= RESERVATION_DELAY.total_seconds():
            reserved |= _nearest_region(entry, room, most, reserved)
    return admitted


def _first_fitting_region(
    entry: QueueEntry, room: Mapping[str, int], reserved: AbstractSet[str]
) -> RegionRequest | None:
    """Return the first region with room that is not reserved."""
    for request in entry.wants:
        if not request.cores or request.region not in room:
            return request
        if request.cores <= room[request.region] and request.region not in reserved:
            return request
    return None


def _nearest_region(
    entry: QueueEntry, room: Mapping[str, int], most: Mapping[str, int], reserved: AbstractSet[str]
) -> set[str]:
    """Return the region that lacks the fewest cores and can ever suffice; at most one."""
    open_ = [
        (request.cores - room[request.region], request.region)
        for request in entry.wants
        if request.region not in reserved and request.cores <= most[request.region]
    ]
    return {min(open_)[1]} if open_ else set()


def _round_to_quarters(after: RemainingTime, now: datetime) -> RemainingTime:
    """Round each moment up to the next full quarter of an hour."""
    at = now.timestamp()
    p10, p50, p90 = (
        -(-(at + seconds) // _QUARTER) * _QUARTER - at
        for seconds in (after.p10, after.p50, after.p90)
    )
    return RemainingTime(p10=p10, p50=p50, p90=p90)
