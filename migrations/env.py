"""Alembic's entry: one connection, short lock time-outs, the URL from whoever calls."""

import asyncio

from alembic import context
from sqlalchemy import text
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import create_async_engine

from service.db.engine import driver_url, patience
from service.db.tables import metadata


def _run(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata, compare_type=True)
    with context.begin_transaction():
        connection.execute(text("select pg_advisory_xact_lock(7241)"))  # one migration at a time
        connection.execute(text("set local lock_timeout = '5s'"))
        context.run_migrations()


async def _connect() -> None:
    url = context.config.get_main_option("sqlalchemy.url") or ""
    engine = create_async_engine(driver_url(url), connect_args=patience(url))
    async with engine.begin() as connection:
        await connection.run_sync(_run)
    await engine.dispose()


asyncio.run(_connect())
