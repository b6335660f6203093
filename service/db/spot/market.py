"""Read and write what Azure reported about its Spot market, and claim its next query."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import and_, case, delete, func, insert, select, tuple_, update
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.schema.market_tables import market_looks, spot_bands, spot_prices, spot_scores
from service.domain.placement.placement_scores import SCORE_MAX_AGE, ScoreRecord
from service.domain.spot.capacity_traces import SpotPool
from service.domain.spot.market import EvictionBand, PlacementScore, PricePoint, ReportedBand

_looks, _bands, _prices, _scores = market_looks.c, spot_bands.c, spot_prices.c, spot_scores.c


async def claim(conn: AsyncConnection, topic: str, now: datetime, until: datetime) -> bool:
    """Claim the next query of ``topic``; return True to one replica.

    If that query fails, the next one is due at ``until``.
    """
    new = upsert(market_looks).values(what=topic, due_at=until)
    statement = new.on_conflict_do_update(
        index_elements=[_looks.what], set_={"due_at": until}, where=_looks.due_at <= now
    )
    return (await conn.execute(statement.returning(_looks.what))).one_or_none() is not None


async def record_success(
    conn: AsyncConnection, topic: str, now: datetime, due_at: datetime
) -> None:
    """Record a successful query, and when the next one is due."""
    values = {"told_at": now, "due_at": due_at, "trouble": "", "trouble_at": None}
    await conn.execute(update(market_looks).where(_looks.what == topic).values(values))


async def record_failure(
    conn: AsyncConnection, topic: str, trouble: str, now: datetime, due_at: datetime
) -> None:
    """Record a failed query; earlier answers stay valid."""
    values = {"due_at": due_at, "trouble": trouble, "trouble_at": now}
    await conn.execute(update(market_looks).where(_looks.what == topic).values(values))


async def bands(conn: AsyncConnection, pools: Iterable[SpotPool]) -> dict[SpotPool, ReportedBand]:
    """Return the last eviction band of each pool that has one."""
    columns = (_bands.region, _bands.vm_size)
    query = (
        select(*columns, _bands.band, _bands.seen_at)
        .ext(distinct_on(*columns))
        .where(tuple_(*columns).in_(sorted(set(pools))))
        .order_by(*columns, _bands.since.desc())
    )
    return {
        SpotPool(row.region, row.vm_size): ReportedBand(
            band=EvictionBand(row.band), seen_at=row.seen_at
        )
        for row in await conn.execute(query)
    }


async def save_bands(
    conn: AsyncConnection, latest: Mapping[SpotPool, EvictionBand], now: datetime
) -> None:
    """Write eviction bands: a changed band gets a new row, the same one a new `seen_at`."""
    current = await bands(conn, latest)
    for pool, band in sorted(latest.items()):
        before = current.get(pool)
        if before is None or before.band is not band:
            row = {**pool._asdict(), "since": now, "seen_at": now, "band": band.value}
            await conn.execute(insert(spot_bands).values(row))
        else:
            conditions = (_bands.region == pool.region, _bands.vm_size == pool.vm_size)
            last = update(spot_bands).where(*conditions, _bands.seen_at == before.seen_at)
            await conn.execute(last.values(seen_at=now))


async def save_prices(
    conn: AsyncConnection, prices: Mapping[SpotPool, Collection[PricePoint]], now: datetime
) -> None:
    """Write prices; a newer report of the same price point replaces the older one."""
    rows = [
        {**pool._asdict(), "at": point.at, "hourly": point.hourly, "seen_at": now}
        for pool, points in sorted(prices.items())
        for point in points
    ]
    if not rows:
        return
    new = upsert(spot_prices)
    updates = {"hourly": new.excluded.hourly, "seen_at": new.excluded.seen_at}
    key = [_prices.region, _prices.vm_size, _prices.at]
    # One statement per row: of a price reported twice the last counts, and there may be very many.
    await conn.execute(new.on_conflict_do_update(index_elements=key, set_=updates), rows)


async def prices(
    conn: AsyncConnection, pools: Collection[SpotPool], since: datetime, until: datetime
) -> dict[SpotPool, list[PricePoint]]:
    """Return prices of each known pool, oldest first, from the one valid at ``since`` on."""
    columns, older = (_prices.region, _prices.vm_size), spot_prices.alias()
    same = (
        older.c.region == _prices.region,
        older.c.vm_size == _prices.vm_size,
        older.c.hourly > 0,
    )
    last_before = select(func.max(older.c.at)).where(*same, older.c.at <= since).scalar_subquery()
    query = select(*columns, _prices.at, _prices.hourly).where(
        tuple_(*columns).in_(sorted(set(pools))),
        _prices.hourly > 0,  # no machine is free: Azure published an error
        *(_prices.at >= func.coalesce(last_before, since), _prices.at < until),
    )
    points: defaultdict[SpotPool, list[PricePoint]] = defaultdict(list)
    for row in await conn.execute(query.order_by(_prices.at)):
        points[SpotPool(row.region, row.vm_size)].append(PricePoint(row.at, row.hourly))
    return points


async def save_scores(
    conn: AsyncConnection, scores: Mapping[SpotPool, PlacementScore], machines: int, now: datetime
) -> None:
    """Replace all placement scores; an unchanged score keeps its `since`."""
    keep = tuple_(_scores.region, _scores.vm_size).not_in(sorted(scores))
    await conn.execute(delete(spot_scores).where(keep))
    common = {"machines": machines, "since": now, "seen_at": now}
    rows = [{**p._asdict(), "score": s.value, **common} for p, s in sorted(scores.items())]
    if not rows:
        return
    new = upsert(spot_scores).values(rows)
    updates: dict[str, Any] = {n: new.excluded[n] for n in ("score", "machines", "seen_at")}
    is_unchanged = and_(
        _scores.score == new.excluded.score,
        _scores.machines == new.excluded.machines,
        _scores.seen_at > now - SCORE_MAX_AGE,
    )
    updates["since"] = case((is_unchanged, _scores.since), else_=now)
    key = [_scores.region, _scores.vm_size]
    await conn.execute(new.on_conflict_do_update(index_elements=key, set_=updates))


async def scores(conn: AsyncConnection, pools: Iterable[SpotPool]) -> dict[SpotPool, ScoreRecord]:
    """Return the last placement scores, even outdated ones: see `ScoreRecord.is_valid_for`."""
    columns = tuple_(_scores.region, _scores.vm_size)
    rows = await conn.execute(select(spot_scores).where(columns.in_(sorted(set(pools)))))
    return {
        SpotPool(row.region, row.vm_size): ScoreRecord(
            score=PlacementScore(row.score),
            machines=row.machines,
            since=row.since,
            seen_at=row.seen_at,
        )
        for row in rows
    }
