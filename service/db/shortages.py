"""What all jobs know of offerings that had no capacity."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import ColumnElement, RowMapping, delete, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.shortage_tables import shortages
from service.domain.fleet import Offering
from service.domain.shortage import Shortage, refused
from service.domain.states import CapacityType

_c = shortages.c
_KEY = (_c.region, _c.vm_size, _c.capacity_type)
_TOLD = ("since", "ends_at", "in_a_row", "nodes", "reason")


async def of(
    conn: AsyncConnection, offerings: Iterable[Offering], *, to_write: bool = False
) -> dict[Offering, Shortage]:
    """Those of ``offerings`` that were refused and not given since; locked ``to_write``."""
    keys = sorted({_key(o) for o in offerings})
    query = select(shortages).where(tuple_(*_KEY).in_(keys)).order_by(*_KEY)
    rows = await conn.execute(query.with_for_update() if to_write else query)
    return {found.offering: found for found in map(_parsed, rows.mappings())}


async def note(
    conn: AsyncConnection,
    offering: Offering,
    nodes: int,
    reason: str,
    asked: datetime,
    now: datetime,
) -> None:
    """Azure had no room for so many; ``asked``: when the attempt was made that was refused."""
    before = (await of(conn, [offering], to_write=True)).get(offering)
    after = refused(before, offering, nodes, reason, asked, now)
    if after != before:
        await _write(conn, after)


async def probe(conn: AsyncConnection, shortage: Shortage, nodes: int, now: datetime) -> bool:
    """One job asks for so many now: the others wait for what becomes of it.

    False: since ``shortage`` was read another job has asked, or has been given machines.
    """
    read, asked = (
        {"ends_at": one.ends_at, "nodes": one.nodes}
        for one in (shortage, shortage.probed(now, nodes))
    )
    as_read = [*_mine(shortage.offering), *(_c[name] == value for name, value in read.items())]
    asks = update(shortages).where(*as_read).values(asked)
    return (await conn.execute(asks.returning(_c.region))).one_or_none() is not None


async def end(conn: AsyncConnection, offering: Offering) -> None:
    """Azure gave machines: whoever wants may ask."""
    await conn.execute(delete(shortages).where(*_mine(offering)))


async def _write(conn: AsyncConnection, shortage: Shortage) -> None:
    region, vm_size, capacity_type = _key(shortage.offering)
    row: dict[str, object] = {"region": region, "vm_size": vm_size}
    row["capacity_type"] = capacity_type
    news = {name: getattr(shortage, name) for name in _TOLD}
    into = upsert(shortages).values(row | news)
    await conn.execute(into.on_conflict_do_update(index_elements=_KEY, set_=news))


def _mine(offering: Offering) -> list[ColumnElement[bool]]:
    return [c == v for c, v in zip(_KEY, _key(offering), strict=True)]


def _key(offering: Offering) -> tuple[str, str, str]:
    return (offering.region, offering.vm_size, str(offering.capacity_type))


def _parsed(row: RowMapping) -> Shortage:
    offering = Offering(
        region=row["region"],
        vm_size=row["vm_size"],
        capacity_type=CapacityType(row["capacity_type"]),
    )
    return Shortage(offering=offering, **{name: row[name] for name in _TOLD})
