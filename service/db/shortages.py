"""What all jobs know of offerings that had no capacity."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import RowMapping, delete, select, tuple_
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.shortage_tables import shortages
from service.domain.fleet import Offering
from service.domain.shortage import Shortage, refused
from service.domain.states import CapacityType

_c = shortages.c
_KEY = (_c.region, _c.vm_size, _c.capacity_type)
_TOLD = ("since", "ends_at", "in_a_row", "reason")


async def of(
    conn: AsyncConnection, offerings: Iterable[Offering], *, to_write: bool = False
) -> dict[Offering, Shortage]:
    """Those of ``offerings`` that were refused and not given since; locked ``to_write``."""
    keys = sorted({_key(o) for o in offerings})
    query = select(shortages).where(tuple_(*_KEY).in_(keys)).order_by(*_KEY)
    rows = await conn.execute(query.with_for_update() if to_write else query)
    return {found.offering: found for found in map(_parsed, rows.mappings())}


async def note(conn: AsyncConnection, offering: Offering, reason: str, now: datetime) -> None:
    """Azure had no room for it."""
    before = (await of(conn, [offering], to_write=True)).get(offering)
    await _write(conn, refused(before, offering, reason, now))


async def probe(conn: AsyncConnection, shortage: Shortage, now: datetime) -> None:
    """One job asks now: the others wait for what becomes of it."""
    await _write(conn, shortage.probed(now))


async def end(conn: AsyncConnection, offering: Offering) -> None:
    """Azure gave machines: whoever wants may ask."""
    mine = [c == v for c, v in zip(_KEY, _key(offering), strict=True)]
    await conn.execute(delete(shortages).where(*mine))


async def _write(conn: AsyncConnection, shortage: Shortage) -> None:
    region, vm_size, capacity_type = _key(shortage.offering)
    row: dict[str, object] = {"region": region, "vm_size": vm_size}
    row["capacity_type"] = capacity_type
    news = {name: getattr(shortage, name) for name in _TOLD}
    into = upsert(shortages).values(row | news)
    await conn.execute(into.on_conflict_do_update(index_elements=_KEY, set_=news))


def _key(offering: Offering) -> tuple[str, str, str]:
    return (offering.region, offering.vm_size, str(offering.capacity_type))


def _parsed(row: RowMapping) -> Shortage:
    offering = Offering(
        region=row["region"],
        vm_size=row["vm_size"],
        capacity_type=CapacityType(row["capacity_type"]),
    )
    return Shortage(offering=offering, **{name: row[name] for name in _TOLD})
