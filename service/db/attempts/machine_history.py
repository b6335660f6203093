"""Read how long each offering's machines were held, from attempts of all jobs."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Protocol

from sqlalchemy import Row, Select, case, func, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.cloud import offerings as rows
from service.db.schema.tables import attempts
from service.db.spot import market
from service.domain.cloud.fleet import Offering
from service.domain.lifecycle.constraints import RETURNS_TO_SPOT
from service.domain.placement.capacity_history import NO_HISTORY, CapacityHistory, RequestOutcome
from service.domain.placement.offering_choice import OfferingExperience
from service.domain.spot.age_hazard import NO_EXPOSURE, Exposure
from service.domain.spot.capacity_traces import spot_pool_of
from service.domain.states import CapacityType, Outcome

HISTORY_WINDOW = timedelta(days=30)  # older holds say little about today
_MAX_ATTEMPTS = 500  # attempts that one query reads
_c = attempts.c
_OVER_AT = func.coalesce(_c.over_at, _c.since)


class _Hold(Protocol):
    """A row of an attempt that trained."""

    ran_at: datetime
    ended: datetime  # now, while it runs
    outcome: str | None
    outlived: Sequence[datetime]


async def holds_by_offering(
    conn: AsyncConnection, offerings: Iterable[Offering], now: datetime
) -> dict[Offering, OfferingExperience]:
    """Return the experience with each offering whose machines were ever held.

    A hold ends when its attempt's outcome is known. An eviction that the attempt outlives ends a
    hold too; the next hold begins at the age that was reached.
    """
    ended = case((_c.outcome.is_not(None), _OVER_AT), else_=now)
    columns = (*rows.columns(attempts), _c.outcome, _c.ran_at, _c.outlived, ended.label("ended"))
    query = (
        select(*columns)
        .where(
            rows.among(attempts, offerings),
            _c.ran_at.is_not(None),
            _c.created_at > now - HISTORY_WINDOW,
        )
        .order_by(_c.created_at.desc())
        .limit(_MAX_ATTEMPTS)
    )
    holds: dict[Offering, list[tuple[float, bool]]] = {}
    later: dict[Offering, Exposure] = {}
    evicted: dict[Offering, float] = {}
    for row in await conn.execute(query):
        offering = rows.of(row)
        evictions = [*row.outlived, *([row.ended] if row.outcome == Outcome.EVICTED else [])]
        (_, first), *continued = _split_hold(row)
        holds.setdefault(offering, []).append(first)
        for age, life in continued:
            later[offering] = later.get(offering, NO_EXPOSURE) + Exposure.of([life], age)
        if evictions:
            ago = (now - max(evictions)).total_seconds()
            evicted[offering] = min(ago, evicted.get(offering, ago))
    return {
        o: OfferingExperience(
            holds=Exposure.of(lifetimes) + later.get(o, NO_EXPOSURE), evicted_s=evicted.get(o)
        )
        for o, lifetimes in holds.items()
    }


def _split_hold(row: _Hold) -> list[tuple[float, tuple[float, bool]]]:
    """Cut a hold at each eviction: age in hours at the start, hours held, and whether evicted."""
    ends = [*row.outlived, row.ended]
    ages = [max((at - row.ran_at).total_seconds() / 3600, 0.0) for at in ends]
    evicted = [True] * len(row.outlived) + [row.outcome == Outcome.EVICTED]
    parts = zip(pairwise([0.0, *ages]), evicted, strict=True)
    return [(since, (max(to - since, 0.0), end)) for (since, to), end in parts]


async def capacity_history(
    conn: AsyncConnection, offerings: Collection[Offering], nodes: int, now: datetime
) -> CapacityHistory:
    """Return all jobs' history of Spot requests, as far as it counts for ``nodes`` machines.

    Includes moves from on demand back to Spot, and the eviction bands that Azure reported last.
    """
    spots = {o for o in offerings if o.capacity_type is CapacityType.SPOT}
    if not spots:
        return NO_HISTORY
    history = await request_outcomes(conn, spots, nodes, now)
    returned = await _count_returns(conn, now)
    reports = await market.bands(conn, map(spot_pool_of, spots))
    bands = {o: reports[spot_pool_of(o)].band.per_hour for o in spots if spot_pool_of(o) in reports}
    return replace(history, returned=returned, bands=bands)


async def request_outcomes(
    conn: AsyncConnection, spots: Collection[Offering], nodes: int, now: datetime
) -> CapacityHistory:
    """Return the history of requests for Spot offerings alone, in one query."""
    answers = [_parse_outcome(row) for row in await conn.execute(_outcomes_query(spots, now))]
    return CapacityHistory.of(answers, spots, nodes, now)


def _outcomes_query(spots: Iterable[Offering], now: datetime) -> Select[tuple[object, ...]]:
    in_offerings = rows.among(attempts, spots)
    columns = (*rows.columns(attempts), _c.job_id, _c.instance_count)
    outlived = _c.outlived[func.cardinality(_c.outlived)].label("outlived_at")
    selected = (*columns, _c.created_at, _c.outcome, _OVER_AT.label("over_at"), outlived)
    kinds = (_c.ran_at.is_not(None), _c.outcome == Outcome.NO_CAPACITY)  # an index for each
    newest = [
        select(*selected)
        .where(in_offerings, kind, _c.created_at > now - HISTORY_WINDOW)
        .order_by(_c.created_at.desc())
        .limit(_MAX_ATTEMPTS)
        .subquery()
        for kind in kinds
    ]
    union = union_all(*(select(newest_of_kind) for newest_of_kind in newest)).subquery()
    return select(*union.c)


def _parse_outcome(row: Row[tuple[object, ...]]) -> RequestOutcome:
    granted = row.outcome != Outcome.NO_CAPACITY
    return RequestOutcome(
        offering=rows.of(row),
        job_id=row.job_id,
        nodes=row.instance_count,
        at=row.created_at if granted else row.over_at,  # a refusal may come minutes later
        granted=granted,
        evicted_at=row.over_at if row.outcome == Outcome.EVICTED else None,
        outlived_at=row.outlived_at,
    )


async def _count_returns(conn: AsyncConnection, now: datetime) -> tuple[int, int]:
    """Count moves of any job from on demand to Spot, and how many of them Spot accepted."""
    following = attempts.alias("then")
    left_on_demand = (_c.capacity_type == CapacityType.ON_DEMAND, _c.outcome == Outcome.PAUSED)
    is_granted = following.c.ran_at.is_not(None)
    query = (
        select(func.count(), func.count().filter(is_granted))
        .select_from(attempts)
        .join(following, (following.c.job_id == _c.job_id) & (following.c.number == _c.number + 1))
        .where(*left_on_demand, _c.reason == RETURNS_TO_SPOT, _c.created_at > now - HISTORY_WINDOW)
        .where(following.c.capacity_type == CapacityType.SPOT)
        .where(is_granted | (following.c.outcome == Outcome.NO_CAPACITY))
    )
    moved, accepted = (await conn.execute(query)).one()
    return moved, accepted
