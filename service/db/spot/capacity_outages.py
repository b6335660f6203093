"""Read and write shortages: offerings that refused machines, shared by all jobs."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.cloud.offerings import NAMES, among, columns, values
from service.db.cloud.offerings import of as of_row
from service.db.schema.shortage_tables import shortages
from service.domain.cloud.fleet import Offering
from service.domain.spot.capacity_backoff import Shortage, record_refusal

_c = shortages.c
_KEY = columns(shortages)
_COLUMNS = ("since", "ends_at", "in_a_row", "nodes", "reason")


async def open_shortages(
    conn: AsyncConnection, offerings: Iterable[Offering], *, to_write: bool = False
) -> dict[Offering, Shortage]:
    """Return shortages of these offerings by offering; locked in one order if ``to_write``."""
    query = select(shortages).where(among(shortages, offerings)).order_by(*_KEY)
    rows = await conn.execute(query.with_for_update() if to_write else query)
    return {shortage.offering: shortage for shortage in map(_parsed, rows)}


async def note(
    conn: AsyncConnection,
    offering: Offering,
    nodes: int,
    reason: str,
    requested_at: datetime,
    now: datetime,
) -> None:
    """Record that Azure refused ``nodes`` machines of an offering.

    ``requested_at``: when the refused attempt was created.
    """
    before = (await open_shortages(conn, [offering], to_write=True)).get(offering)
    after = record_refusal(before, offering, nodes, reason, requested_at, now)
    if after != before:
        await _write(conn, after)


async def probe(conn: AsyncConnection, shortage: Shortage, nodes: int, now: datetime) -> bool:
    """Let one job request ``nodes`` machines now, while others wait for the outcome.

    Return False if another job has probed or got machines since ``shortage`` was read.
    """
    before, after = (
        {"ends_at": state.ends_at, "nodes": state.nodes}
        for state in (shortage, shortage.with_probe(now, nodes))
    )
    conditions = [
        among(shortages, [shortage.offering]),
        *(_c[name] == value for name, value in before.items()),
    ]
    statement = update(shortages).where(*conditions).values(after)
    return (await conn.execute(statement.returning(_c.region))).one_or_none() is not None


async def end(conn: AsyncConnection, offering: Offering) -> None:
    """Delete the shortage: Azure gave machines, so all jobs may request them."""
    await conn.execute(delete(shortages).where(among(shortages, [offering])))


async def _write(conn: AsyncConnection, shortage: Shortage) -> None:
    row: dict[str, object] = dict(zip(NAMES, values(shortage.offering), strict=True))
    columns = {name: getattr(shortage, name) for name in _COLUMNS}
    statement = upsert(shortages).values(row | columns)
    await conn.execute(statement.on_conflict_do_update(index_elements=_KEY, set_=columns))


def _parsed(row: Row[Any]) -> Shortage:
    return Shortage(offering=of_row(row), **{name: getattr(row, name) for name in _COLUMNS})
