"""Locks of many rows, taken in one order: so that no two transactions wait for each other.

In a statement of its own, before the one that writes them, and not within it. Within one statement
PostgreSQL locks a row's newest version and then looks for the version that was there when
the statement began: while another transaction inserts rows that refer to the row, it waits at that
older version behind whoever stands there already, and that one waits for the newest.
"""

from collections.abc import Collection

from sqlalchemy import ColumnElement, Table, select
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.schema.columns import among


async def take(
    conn: AsyncConnection, table: Table, ids: Collection[str], *such: ColumnElement[bool]
) -> list[str]:
    """Lock those of these rows that there are, and that are ``such``; returns them, in order."""
    mine = select(table.c.id).where(among(table.c.id, ids), *such).order_by(table.c.id)
    return list((await conn.execute(mine.with_for_update(key_share=True))).scalars())


async def before_writing(
    conn: AsyncConnection, table: Table, ids: Collection[str], *such: ColumnElement[bool]
) -> None:
    """The same for who writes them next, where there are several: one row needs no order.

    Who writes asks ``such`` again. Without it a crowd waits for rows that it will not write.
    """
    if len(ids) > 1:
        await take(conn, table, ids, *such)
