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


async def claim(conn: AsyncConnection, what: str, now: datetime, until: datetime) -> bool:
    """Claim the next query of ``what``; return True to one replica.

    If that query fails, the next one is due at ``until``.
    """
    new = upsert(market_looks).values(what=what, due_at=until)
    taken = new.on_conflict_do_update(
        index_elements=[_looks.what], set_={"due_at": until}, where=_looks.due_at <= now
    )
    return (await conn.execute(taken.returning(_looks.what))).one_or_none() is not None


async def record_success(conn: AsyncConnection, what: str, now: datetime, due_at: datetime) -> None:
    """Record a successful query, and when the next one is due."""
    news = {"told_at": now, "due_at": due_at, "trouble": "", "trouble_at": None}
    await conn.execute(update(market_looks).where(_looks.what == what).values(news))


async def record_failure(
    conn: AsyncConnection, what: str, trouble: str, now: datetime, due_at: datetime
) -> None:
    """Record a failed query; earlier answers stay valid."""
    news = {"due_at": due_at, "trouble": trouble, "trouble_at": now}
    await conn.execute(update(market_looks).where(_looks.what == what).values(news))


async def bands(conn: AsyncConnection, places: Iterable[SpotPool]) -> dict[SpotPool, ReportedBand]:
    """Return the last eviction band of each place that has one."""
    place = (_bands.region, _bands.vm_size)
    query = (
        select(*place, _bands.band, _bands.seen_at)
        .ext(distinct_on(*place))
        .where(tuple_(*place).in_(sorted(set(places))))
        .order_by(*place, _bands.since.desc())
    )
    return {
        SpotPool(row.region, row.vm_size): ReportedBand(
            band=EvictionBand(row.band), seen_at=row.seen_at
        )
        for row in await conn.execute(query)
    }


async def save_bands(
    conn: AsyncConnection, news: Mapping[SpotPool, EvictionBand], now: datetime
) -> None:
    """Write eviction bands: a changed band gets a new row, the same one a new `seen_at`."""
    known = await bands(conn, news)
    for place, band in sorted(news.items()):
        before = known.get(place)
        if before is None or before.band is not band:
            row = {**place._asdict(), "since": now, "seen_at": now, "band": band.value}
            await conn.execute(insert(spot_bands).values(row))
        else:
            mine = (_bands.region == place.region, _bands.vm_size == place.vm_size)
            last = update(spot_bands).where(*mine, _bands.seen_at == before.seen_at)
            await conn.execute(last.values(seen_at=now))


async def save_prices(
    conn: AsyncConnection, news: Mapping[SpotPool, Collection[PricePoint]], now: datetime
) -> None:
    """Write prices; a newer report of the same price point replaces the older one."""
    rows = [
        {**place._asdict(), "at": point.at, "hourly": point.hourly, "seen_at": now}
        for place, points in sorted(news.items())
        for point in points
    ]
    if not rows:
        return
    new = upsert(spot_prices)
    again = {"hourly": new.excluded.hourly, "seen_at": new.excluded.seen_at}
    key = [_prices.region, _prices.vm_size, _prices.at]
    # One statement per row: of a price reported twice the last counts, and there may be very many.
    await conn.execute(new.on_conflict_do_update(index_elements=key, set_=again), rows)


async def prices(
    conn: AsyncConnection, places: Collection[SpotPool], since: datetime, until: datetime
) -> dict[SpotPool, list[PricePoint]]:
    """Return prices of each known place, oldest first, from the one valid at ``since`` on."""
    place, older = (_prices.region, _prices.vm_size), spot_prices.alias()
    same = (
        older.c.region == _prices.region,
        older.c.vm_size == _prices.vm_size,
        older.c.hourly > 0,
    )
    held = select(func.max(older.c.at)).where(*same, older.c.at <= since).scalar_subquery()
    query = select(*place, _prices.at, _prices.hourly).where(
        tuple_(*place).in_(sorted(set(places))),
        _prices.hourly > 0,  # no machine is free: Azure published an error
        *(_prices.at >= func.coalesce(held, since), _prices.at < until),
    )
    found: defaultdict[SpotPool, list[PricePoint]] = defaultdict(list)
    for row in await conn.execute(query.order_by(_prices.at)):
        found[SpotPool(row.region, row.vm_size)].append(PricePoint(row.at, row.hourly))
    return found


async def save_scores(
    conn: AsyncConnection, news: Mapping[SpotPool, PlacementScore], machines: int, now: datetime
) -> None:
    """Replace all placement scores; an unchanged score keeps its `since`."""
    keep = tuple_(_scores.region, _scores.vm_size).not_in(sorted(news))
    await conn.execute(delete(spot_scores).where(keep))
    told = {"machines": machines, "since": now, "seen_at": now}
    rows = [{**p._asdict(), "score": s.value, **told} for p, s in sorted(news.items())]
    if not rows:
        return
    new = upsert(spot_scores).values(rows)
    again: dict[str, Any] = {n: new.excluded[n] for n in ("score", "machines", "seen_at")}
    same = and_(
        _scores.score == new.excluded.score,
        _scores.machines == new.excluded.machines,
        _scores.seen_at > now - SCORE_MAX_AGE,
    )
    again["since"] = case((same, _scores.since), else_=now)
    key = [_scores.region, _scores.vm_size]
    await conn.execute(new.on_conflict_do_update(index_elements=key, set_=again))


async def scores(conn: AsyncConnection, places: Iterable[SpotPool]) -> dict[SpotPool, ScoreRecord]:
    """Return the last placement scores, even outdated ones: see `ScoreRecord.is_valid_for`."""
    place = tuple_(_scores.region, _scores.vm_size)
    rows = await conn.execute(select(spot_scores).where(place.in_(sorted(set(places)))))
    return {
        SpotPool(row.region, row.vm_size): ScoreRecord(
            score=PlacementScore(row.score),
            machines=row.machines,
            since=row.since,
            seen_at=row.seen_at,
        )
        for row in rows
    }
