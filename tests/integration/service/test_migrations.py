"""The migrations and the tables in the code describe one schema."""

import asyncio

import pytest
from alembic import command
from alembic.util import CommandError
from sqlalchemy import text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.schema import file_tables
from service.migration import UnknownSchema, migrate, schema
from tests import waiting
from tests.clock import Clock
from tests.integration.db.rows import add_job, blocked, transact
from tests.postgres import migrations

_RENAME = text("update alembic_version set version_num = :to")


def test_the_migrations_lead_to_the_tables_in_the_code(database_url: str) -> None:
    command.check(migrations(database_url))


async def test_a_file_is_of_a_format_that_there_is(engine: AsyncEngine, clock: Clock) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock())
    with pytest.raises(IntegrityError, match="files_format_check"):
        await transact(
            engine, lambda conn: conn.execute(update(file_tables.files).values(format="x"))
        )


async def test_a_schema_of_another_release_is_refused_with_what_to_do(
    engine: AsyncEngine, database_url: str
) -> None:
    await transact(engine, lambda conn: conn.execute(_RENAME, {"to": "9999"}))
    try:
        with pytest.raises(UnknownSchema, match=r"'9999'\. Use that release, or an empty database"):
            await asyncio.to_thread(migrate, database_url)
    finally:
        await transact(engine, lambda conn: conn.execute(_RENAME, {"to": schema().newest}))


async def test_a_failed_migration_releases_its_lock(engine: AsyncEngine, database_url: str) -> None:
    with pytest.raises(CommandError):
        await asyncio.to_thread(command.upgrade, migrations(database_url), "no such release")

    async with engine.connect() as conn:
        free = await conn.execute(text("select pg_try_advisory_lock(7241)"))
        assert free.scalar_one() is True
        await conn.execute(text("select pg_advisory_unlock(7241)"))


async def test_a_migration_waits_for_one_that_runs(engine: AsyncEngine, database_url: str) -> None:
    async with engine.connect() as conn:
        await conn.execute(text("select pg_advisory_lock(7241)"))
        upgrade = asyncio.create_task(
            asyncio.to_thread(command.upgrade, migrations(database_url), "head")
        )
        await waiting.until(lambda: blocked(engine), lambda many: many == 1)
        assert not upgrade.done()
        await conn.execute(text("select pg_advisory_unlock(7241)"))
        await upgrade
