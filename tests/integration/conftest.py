"""The world of the service's integration tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.core.engine import make_engine
from tests import waiting
from tests.azurite import Azurite
from tests.clock import Clock
from tests.nodes.supervised import Scene, set_scene
from tests.world import TABLE, World, open_world


@pytest.fixture
async def batch(database_url: str) -> AsyncIterator[AsyncEngine]:
    """Yield an engine of 12 connections on which a deadlock is detected within 50 ms."""
    engine = make_engine(f"{database_url}&options=-c%20deadlock_timeout%3D50ms", pool_size=12)
    yield engine
    await engine.dispose()


@pytest.fixture
async def world(
    request: pytest.FixtureRequest, engine: AsyncEngine, database_url: str, clock: Clock
) -> AsyncIterator[World]:
    """Yield a service with an empty database, which can buy what the module's OFFERINGS say."""
    table = getattr(request.module, "OFFERINGS", TABLE)
    async with open_world(engine, database_url, clock, table) as new_world:
        yield new_world


@pytest.fixture
async def scene(azurite: Azurite, tmp_path: Path) -> AsyncIterator[Scene]:
    """Yield a service with a job and no supervisor yet."""
    async with set_scene(azurite, tmp_path) as new_scene:
        yield new_scene


@pytest.fixture
async def listening_world(world: World) -> AsyncIterator[World]:
    """Yield a replica that listens for changes of the others, and so caches its reads."""
    listening = asyncio.create_task(world.listener.run())

    async def hears() -> bool:
        return world.listener.is_connected

    await waiting.until(hears, bool, interval=0.01)
    yield world
    listening.cancel()
    with suppress(asyncio.CancelledError):
        await listening
