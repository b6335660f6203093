"""/v1/organization/traces: Spot capacity that the attempts of all jobs observed, as trace files.

For operators: it shows when machines of every project ran.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query

from service.api.deps import Now, Operator, PartsDep
from service.api.http.pages import After, clamp_limit, page, require_known_cursor
from service.api.schemas.organization import AvailabilityTrace, TraceList
from service.db.spot import capacity_observations as rows
from service.domain.errors import InvalidRequest
from service.domain.spot.capacity_traces import MAX_TICKS, CapacityTrace, SpotPool, TraceWindow
from service.operations.monitoring import traces

router = APIRouter(prefix="/organization", tags=["Organization"])
_MAX_LIMIT = 5  # of a page; each may have thousands of ticks
_MAX_TIME = 4_102_444_800
Days = Annotated[int, Query(ge=1, le=90)]
Gap = Annotated[int, Query(ge=60, le=3600, description="seconds between two counts")]
Until = Annotated[int | None, Query(ge=0, le=_MAX_TIME, description="unix seconds; none: now")]


@router.get("/traces", operation_id="listAvailabilityTraces")
async def get_traces(
    parts: PartsDep,
    caller: Operator,
    now: Now,
    days: Days = 30,
    gap_seconds: Gap = 300,
    until: Until = None,
    limit: int = _MAX_LIMIT,
    after: After = None,
) -> TraceList:
    """List traces by Spot pool. Send ``until`` as answered for the next page: traces then match."""
    end = now if until is None else min(datetime.fromtimestamp(until, UTC), now)
    window = _window(end, days, gap_seconds)
    limit = clamp_limit(limit, _MAX_LIMIT)
    async with parts.reading.connect() as conn:
        pools = sorted(await rows.spot_pools(conn, window.begins, end), key=str)
        if after is not None:
            require_known_cursor(None if after not in map(str, pools) else pools, after)
        remaining = [p for p in pools if after is None or str(p) > after]
        requested = remaining[:limit]
        capacity = await traces.read_capacity(conn, requested, window)
    trace_of = {trace.pool: trace for trace in await asyncio.to_thread(capacity.traces, requested)}
    until_tick = int((window.begins + window.ticks * window.gap).timestamp())
    return page(
        TraceList,
        remaining[: limit + 1],
        limit,
        lambda pool: _trace(pool, trace_of.get(pool)),
        until=until_tick,
    )


def _window(end: datetime, days: int, gap_seconds: int) -> TraceWindow:
    """Return the window of the last ``days``, in whole ticks."""
    ticks = days * 86_400 // gap_seconds
    if ticks > MAX_TICKS:
        raise InvalidRequest(
            f"{days} days at {gap_seconds} s are {ticks} counts, more than {MAX_TICKS}. "
            "Request fewer days or a larger gap_seconds.",
            param="gap_seconds",
        )
    gap = timedelta(seconds=gap_seconds)
    whole_end = datetime.fromtimestamp(int(end.timestamp()), UTC)
    return TraceWindow(begins=whole_end - ticks * gap, ticks=ticks, gap=gap)


def _trace(pool: SpotPool, trace: CapacityTrace | None) -> AvailabilityTrace:
    return AvailabilityTrace(
        id=str(pool),
        region=pool.region,
        vm_size=pool.vm_size,
        seen_percent=0.0 if trace is None else round(100 * trace.observed_share, 1),
        trace=None if trace is None else trace.as_dict(),
    )
