"""LISTEN/NOTIFY: who waits for a topic is woken, and nobody is forgotten with a connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.core import notify
from service.db.core.engine import driver_url
from service.db.core.notify import Listener
from tests.waiting import until

DEADLINE = 20.0


@pytest.fixture
async def listener(database_url: str, engine: AsyncEngine) -> AsyncIterator[Listener]:
    """Yield a listener that listens."""
    made = Listener(driver_url(database_url))
    task = asyncio.create_task(made.run())
    await _listening(engine)
    yield made
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_subscribers_are_notified_at_the_commit(
    engine: AsyncEngine, listener: Listener
) -> None:
    async with (
        listener.subscribed("job:1") as mine,
        listener.subscribed("job:1") as mine_too,
        listener.subscribed("job:2") as other,
    ):
        async with engine.begin() as conn:
            await notify.notify(conn, "job:1")
            await conn.execute(text("select 1"))
            before = mine.is_set()
        await asyncio.wait_for(mine.wait(), DEADLINE)
        await asyncio.wait_for(mine_too.wait(), DEADLINE)

        assert not before
        assert not other.is_set()


async def test_a_rollback_sends_no_notification(engine: AsyncEngine, listener: Listener) -> None:
    async with listener.subscribed("rolled back") as mine, listener.subscribed("marker") as marker:
        async with engine.connect() as conn:
            await notify.notify(conn, "rolled back")
            await conn.rollback()
        async with engine.begin() as conn:
            await notify.notify(conn, "marker")
        await asyncio.wait_for(marker.wait(), DEADLINE)

        assert not mine.is_set()


async def test_a_lost_connection_wakes_everybody_and_is_made_again(
    engine: AsyncEngine, listener: Listener
) -> None:
    async with listener.subscribed("one") as one, listener.subscribed("two") as two:
        lost = await _cut(engine)
        await asyncio.wait_for(one.wait(), DEADLINE)
        await asyncio.wait_for(two.wait(), DEADLINE)
        heard_then = listener.is_connected
        await _listening(engine, but_for=lost)
        one.clear()
        async with engine.begin() as conn:
            await notify.notify(conn, "one")

        await asyncio.wait_for(one.wait(), DEADLINE)

    assert (heard_then, listener.is_connected) == (False, True)


async def test_an_ended_subscription_is_removed(listener: Listener) -> None:
    async with listener.subscribed("one"):
        async with listener.subscribed("one"):
            pass
        kept = len(listener._waiting["one"])

    assert kept == 1
    assert "one" not in listener._waiting


async def test_waiting_ends_with_the_time_and_forgets_what_was_heard() -> None:
    event = asyncio.Event()
    await notify.wait(event, 0.01)
    event.set()

    await notify.wait(event, DEADLINE)

    assert not event.is_set()


_OF_LISTENERS = "from pg_stat_activity where query = 'listen rekindle'"


async def _listening(engine: AsyncEngine, but_for: int | None = None) -> None:
    async def connections() -> set[int]:
        async with engine.connect() as conn:
            return set((await conn.execute(text(f"select pid {_OF_LISTENERS}"))).scalars())

    await until(connections, lambda pids: len(pids - {but_for}) == 1, deadline=DEADLINE)


async def _cut(engine: AsyncEngine) -> int:
    """Break the listener's connection, as a failover does; return which one it was."""
    async with engine.begin() as conn:
        lost = (await conn.execute(text(f"select pid {_OF_LISTENERS}"))).scalar_one()
        await conn.execute(text("select pg_terminate_backend(:pid)"), {"pid": lost})
    return int(lost)
