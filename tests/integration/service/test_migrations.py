"""The migrations lead to the tables of the code, and a replica goes on while one adds columns."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from alembic import command
from alembic.util import CommandError
from sqlalchemy import text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.attempts import attempt_facts, attempts, generations, heartbeats
from service.db.schema import file_tables
from service.domain.lifecycle.node import node_id
from service.migration import UnknownSchema, migrate, schema
from tests import waiting
from tests.clock import Clock
from tests.integration.db.rows import add_attempt, add_job, add_node, blocked, generation, transact
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
        result = await conn.execute(text("select pg_try_advisory_lock(7241)"))
        assert result.scalar_one() is True
        await conn.execute(text("select pg_advisory_unlock(7241)"))


async def test_a_migration_waits_for_one_that_runs(engine: AsyncEngine, database_url: str) -> None:
    async with engine.connect() as conn:
        await conn.execute(text("select pg_advisory_lock(7241)"))
        upgrade = asyncio.create_task(
            asyncio.to_thread(command.upgrade, migrations(database_url), "head")
        )
        await waiting.until(lambda: blocked(engine), lambda count: count == 1)
        assert not upgrade.done()
        await conn.execute(text("select pg_advisory_unlock(7241)"))
        await upgrade


OFTEN = 10  # by then the driver has prepared the statement


async def speak(conn: AsyncConnection) -> object:
    return await heartbeats.lock_nodes(conn, [node_id("att-1", "vm-1")])


async def look(conn: AsyncConnection) -> object:
    row = await attempts.find(conn, "att-1")
    assert row is not None
    return await attempt_facts.read_inputs(conn, [(row, None)])


@pytest.mark.parametrize("ask", [speak, look])
@pytest.mark.parametrize("table", ["nodes", "generations", "attempts", "events", "jobs"])
async def test_what_was_prepared_before_a_column_came_is_answered_after_it(
    engine: AsyncEngine,
    clock: Clock,
    table: str,
    ask: Callable[[AsyncConnection], Awaitable[object]],
) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock(), plan={"options": []})
        await add_attempt(conn, clock())
        node = await add_node(conn, clock(), "vm-1")
        await generations.begin_all(conn, [generation(1, [node])], (), clock())
    async with engine.connect() as conn, engine.connect() as migration:
        before = await ask(conn)
        for _ in range(OFTEN):
            assert await ask(conn) == before
            await conn.commit()
        try:
            await migration.execute(text(f"alter table {table} add column to_come int"))
            await migration.commit()

            assert await ask(conn) == before
        finally:
            await conn.rollback()
            await migration.execute(text(f"alter table {table} drop column to_come"))
            await migration.commit()
