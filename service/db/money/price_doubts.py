"""Read and write doubts about prices that jumped, and read the last good prices.

All replicas share the doubts.
A doubt is a row of `market_looks`: ``due_at`` is when it settles, ``trouble`` the price.
"""

from collections.abc import Collection
from datetime import datetime
from decimal import Decimal

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.schema.columns import among
from service.db.schema.market_tables import market_looks
from service.db.schema.tables import attempts
from service.db.spot import market
from service.domain.money.price_check import PriceDoubt
from service.domain.spot.capacity_traces import SpotPool
from service.domain.states import CapacityType

_looks, _attempts = market_looks.c, attempts.c
_PREFIX = "price of "


async def doubts_about(conn: AsyncConnection, meters: Collection[str]) -> dict[str, PriceDoubt]:
    """Return the doubts about these meters, settled ones included."""
    condition = among(_looks.what, [_PREFIX + meter for meter in meters])
    rows = await conn.execute(select(_looks.what, _looks.due_at, _looks.trouble).where(condition))
    return {
        row.what.removeprefix(_PREFIX): PriceDoubt(
            price=Decimal(row.trouble), settles_at=row.due_at
        )
        for row in rows
    }


async def save(conn: AsyncConnection, meter: str, doubt: PriceDoubt, now: datetime) -> None:
    """Store the doubt in place of the meter's earlier one."""
    values = {"due_at": doubt.settles_at, "trouble": str(doubt.price), "trouble_at": now}
    new = upsert(market_looks).values(what=_PREFIX + meter, **values)
    await conn.execute(new.on_conflict_do_update(index_elements=[_looks.what], set_=values))


async def remove(conn: AsyncConnection, meter: str) -> None:
    """Delete the meter's doubt."""
    await conn.execute(delete(market_looks).where(_looks.what == _PREFIX + meter))


async def last_good_prices(
    conn: AsyncConnection, pool: SpotPool, now: datetime
) -> dict[CapacityType, Decimal]:
    """Return the last good prices of a Spot pool, from its newest attempts that ran.

    Spot attempts give the on-demand price too. Without any, the Spot price is the one that Azure
    published last.
    """
    prices: dict[CapacityType, Decimal] = {}
    for capacity in (CapacityType.SPOT, CapacityType.ON_DEMAND):
        query = (
            select(_attempts.hourly, _attempts.on_demand_hourly)
            .where(
                _attempts.region == pool.region,
                _attempts.vm_size == pool.vm_size,
                _attempts.capacity_type == capacity,
                _attempts.ran_at.is_not(None),
                _attempts.hourly > 0,
            )
            .order_by(_attempts.created_at.desc())
            .limit(1)
        )
        if row := (await conn.execute(query)).one_or_none():
            prices[CapacityType.ON_DEMAND] = row.on_demand_hourly
            prices[capacity] = row.hourly
    if CapacityType.SPOT not in prices:
        published = await market.prices(conn, [pool], now, now)
        if pool in published:
            prices[CapacityType.SPOT] = published[pool][-1].hourly
    return prices
