"""Single statements on psycopg itself: SQLAlchemy around one costs more than what it does.

The connections are those of SQLAlchemy's pool, and so are the faults. Statements are written with
psycopg's placeholders, and run on either's connections.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import namedtuple_row
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.util import greenlet_spawn

Driver = psycopg.AsyncConnection[Any]
Conn = AsyncConnection | Driver


class Singles:
    """Connections for single statements: each is a transaction of its own.

    It is committed, as durably as any, when its answer is there.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Driver]:
        """One of the pool; it goes back as it was, and what broke off in a statement is closed."""
        with _told("connect"):
            pooled = await self._engine.raw_connection()
        driver: Driver = pooled.driver_connection  # type: ignore[assignment] # as the URL says
        try:
            with _told("set autocommit", driver):
                await driver.set_autocommit(True)
            yield driver
        finally:
            if driver.info.transaction_status is TransactionStatus.IDLE:
                await driver.set_autocommit(False)
            else:
                await greenlet_spawn(pooled.invalidate)
            await greenlet_spawn(pooled.close)


async def one(conn: Conn, query: str, given: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a row
    """The only row, with its columns as attributes; None where there is none."""
    found = await rows(conn, query, given)
    return found[0] if found else None


async def rows(conn: Conn, query: str, given: Mapping[str, Any]) -> Sequence[Any]:
    """All rows. A fault is SQLAlchemy's DBAPIError in either case."""
    if isinstance(conn, AsyncConnection):
        return (await conn.exec_driver_sql(query, given)).all()
    with _told(query, conn):
        cursor = await conn.cursor(row_factory=namedtuple_row).execute(query, given)
        return await cursor.fetchall()


@contextmanager
def _told(what: str, conn: Driver | None = None) -> Iterator[None]:
    """psycopg's faults become SQLAlchemy's."""
    try:
        yield
    except psycopg.Error as fault:
        raise DBAPIError.instance(
            what, None, fault, psycopg.Error, connection_invalidated=conn is None or conn.closed
        ) from fault
