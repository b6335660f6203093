"""Entry point of Alembic: one connection, short lock timeouts, the URL of the caller.

A transaction for each migration: else what the first one locks is locked until the last one ends,
and the release before waits for all of them.
"""

import asyncio

from alembic import context
from sqlalchemy import text
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from service.db.core.engine import connection_timeouts, driver_url
from service.db.schema.tables import metadata


def _run(connection: Connection) -> None:
    connection.execute(text("select pg_advisory_lock(7241)"))  # one at a time, until we disconnect
    connection.execute(text("set lock_timeout = '5s'"))
    connection.commit()
    context.configure(
        connection=connection,
        target_metadata=metadata,
        compare_type=True,
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()
    connection.commit()  # what was only looked at


async def _connect() -> None:
    url = context.config.get_main_option("sqlalchemy.url") or ""
    # Without a pool: whatever becomes of it the connection ends, and with it what is locked.
    timeouts = connection_timeouts(url)
    engine = create_async_engine(driver_url(url), connect_args=timeouts, poolclass=NullPool)
    async with engine.connect() as connection:
        await connection.run_sync(_run)


asyncio.run(_connect())
