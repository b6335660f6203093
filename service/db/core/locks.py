"""Lock many rows in one order, so that no two transactions deadlock.

The lock is a statement of its own, before the one that writes. Within one statement PostgreSQL
locks a row's newest version and then looks for the version that was there when the statement began.
While another transaction inserts rows that refer to the row, the statement waits at that older
version behind any transaction that is already there, and that one waits for the newest.
"""

from collections.abc import Collection

from sqlalchemy import ColumnElement, Table, select
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.schema.columns import among


async def lock_rows(
    conn: AsyncConnection, table: Table, ids: Collection[str], *conditions: ColumnElement[bool]
) -> list[str]:
    """Lock the rows of ``ids`` that exist and meet ``conditions``; return their ids, sorted."""
    query = select(table.c.id).where(among(table.c.id, ids), *conditions).order_by(table.c.id)
    return list((await conn.execute(query.with_for_update(key_share=True))).scalars())


async def before_writing(
    conn: AsyncConnection, table: Table, ids: Collection[str], *conditions: ColumnElement[bool]
) -> None:
    """Lock rows as ``lock_rows`` does, ahead of a write to several; a single row needs no order.

    The write must check ``conditions`` again. Without them a batch waits for rows that it will
    not write.
    """
    if len(ids) > 1:
        await lock_rows(conn, table, ids, *conditions)
