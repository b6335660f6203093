"""The world of the service's integration tests."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.clock import Clock
from tests.world import World, open_world


@pytest.fixture
async def world(engine: AsyncEngine, database_url: str, clock: Clock) -> AsyncIterator[World]:
    """A service with an empty database."""
    async with open_world(engine, database_url, clock) as made:
        yield made
