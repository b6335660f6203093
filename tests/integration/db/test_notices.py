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
    database_listener = Listener(driver_url(database_url))
    task = asyncio.create_task(database_listener.run())
    await _listening(engine)
    yield database_listener
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_subscribers_are_notified_at_the_commit(
    engine: AsyncEngine, listener: Listener
) -> None:
    async with (
        listener.subscribed("job:1") as own_channel,
        listener.subscribed("job:1") as mine_too,
        listener.subscribed("job:2") as other_channel,
    ):
        async with engine.begin() as conn:
            await notify.notify(conn, "job:1")
            await conn.execute(text("select 1"))
            before = own_channel.is_set()
        await asyncio.wait_for(own_channel.wait(), DEADLINE)
        await asyncio.wait_for(mine_too.wait(), DEADLINE)

        assert not before
        assert not other_channel.is_set()


async def test_a_rollback_sends_no_notification(engine: AsyncEngine, listener: Listener) -> None:
    async with (
        listener.subscribed("rolled back") as rolled_back,
        listener.subscribed("marker") as marker,
    ):
        async with engine.connect() as conn:
            await notify.notify(conn, "rolled back")
            await conn.rollback()
        async with engine.begin() as conn:
            await notify.notify(conn, "marker")
        await asyncio.wait_for(marker.wait(), DEADLINE)

        assert not rolled_back.is_set()


async def test_a_lost_connection_wakes_everybody_and_is_made_again(
    engine: AsyncEngine, listener: Listener
) -> None:
    async with listener.subscribed("one") as first, listener.subscribed("two") as second:
        backend_pid = await _cut(engine)
        await asyncio.wait_for(first.wait(), DEADLINE)
        await asyncio.wait_for(second.wait(), DEADLINE)
        heard_then = listener.is_connected
        await _listening(engine, but_for=backend_pid)
        first.clear()
        async with engine.begin() as conn:
            await notify.notify(conn, "one")

        await asyncio.wait_for(first.wait(), DEADLINE)

    assert (heard_then, listener.is_connected) == (False, True)


async def test_an_ended_subscription_is_removed(listener: Listener) -> None:
    async with listener.subscribed("one"):
        async with listener.subscribed("one"):
            pass
        waiting_count = len(listener._waiting["one"])

    assert waiting_count == 1
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
        backend_pid = (await conn.execute(text(f"select pid {_OF_LISTENERS}"))).scalar_one()
        await conn.execute(text("select pg_terminate_backend(:pid)"), {"pid": backend_pid})
    return int(backend_pid)
