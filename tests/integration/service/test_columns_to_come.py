"""A replica goes on while a migration of the next release adds columns to what it reads."""

from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.attempts import attempt_facts, attempts, generations, heartbeats
from service.domain.lifecycle.node import node_id
from tests.clock import Clock
from tests.integration.db.rows import add_attempt, add_job, add_node, generation

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
