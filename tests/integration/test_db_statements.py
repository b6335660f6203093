"""Single statements on psycopg: what they leave in the pool, and how they fail."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db import statements
from service.db.engine import make_engine
from service.db.statements import Singles
from tests import waiting

PID = "select pg_backend_pid() pid"
KEPT = "create table if not exists kept (n int primary key)"


@pytest.fixture
async def narrow(database_url: str) -> AsyncIterator[AsyncEngine]:
    """An engine with one connection."""
    made = make_engine(database_url, pool_size=1)
    yield made
    async with made.begin() as conn:
        await conn.execute(text("drop table if exists kept"))
    await made.dispose()


async def pid(engine: AsyncEngine) -> int:
    async with engine.connect() as conn:
        return int((await conn.execute(text(PID))).scalar_one())


async def sleeping(engine: AsyncEngine) -> int:
    """How many statements of the test below the server is still at."""
    query = (
        "select count(*) from pg_stat_activity where state = 'active' and query like '%sleep(6_)'"
    )
    async with engine.connect() as conn:
        return int((await conn.execute(text(query))).scalar_one())


async def test_a_statement_is_committed_and_its_connection_goes_back_as_it_was(
    narrow: AsyncEngine,
) -> None:
    before = await pid(narrow)
    async with Singles(narrow).connect() as conn:
        await conn.execute(KEPT)
        await statements.rows(conn, "insert into kept values (%(n)s) returning n", {"n": 1})
    async with narrow.connect() as other:
        await other.execute(text("insert into kept values (2)"))
        await other.rollback()
        found = await statements.rows(other, "select n from kept", {})

    assert [row.n for row in found] == [1]
    assert await pid(narrow) == before


async def test_a_refused_row_is_sqlalchemys_fault_and_costs_no_connection(
    narrow: AsyncEngine,
) -> None:
    before = await pid(narrow)
    async with Singles(narrow).connect() as conn:
        await conn.execute(KEPT)
        with pytest.raises(IntegrityError):
            await statements.rows(conn, "insert into kept values (%(n)s) returning n", {"n": None})

    assert await pid(narrow) == before


async def test_an_ended_connection_is_told_and_not_used_again(
    narrow: AsyncEngine, engine: AsyncEngine
) -> None:
    async with Singles(narrow).connect() as conn:
        mine = (await statements.one(conn, PID, {})).pid
        async with engine.connect() as other:
            await other.execute(text(f"select pg_terminate_backend({mine}, 5000)"))
        with pytest.raises(DBAPIError) as ended:
            await statements.one(conn, PID, {})

    assert ended.value.connection_invalidated
    assert await pid(narrow) != mine


async def test_who_is_cancelled_within_a_statement_leaves_nothing_under_way(
    narrow: AsyncEngine,
) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2), Singles(narrow).connect() as conn:
            await statements.one(conn, "select pg_sleep(60)", {})

    await asyncio.wait_for(waiting.until(lambda: sleeping(narrow), lambda n: n == 0), 10)


async def test_a_server_that_refuses_is_sqlalchemys_fault_too() -> None:
    nobody = make_engine("postgresql+psycopg://rekindle@127.0.0.1:9/rekindle", pool_size=1)

    with pytest.raises(OperationalError):
        async with Singles(nobody).connect():
            pass

    await nobody.dispose()
