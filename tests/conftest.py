"""Fixtures for every test: the clock, and a migrated PostgreSQL that is empty before each test."""

import gc
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from hypothesis import settings
from sqlalchemy import AsyncAdaptedQueuePool
from sqlalchemy.ext.asyncio import AsyncEngine

from rekindle.local import postgres
from service.db.core.engine import make_engine
from tests import azurite as blob_emulator
from tests import postgres as test_postgres
from tests import waiting
from tests.clock import Clock

TESTS = Path(__file__).resolve().parent
# Before torch is imported. Processes share the cores: threads that wait for each other inside an
# operation made a test take 120 s in place of 5 s.
os.environ["OMP_NUM_THREADS"] = "1"  # noqa: TID251 - tests are a program of their own
# The same examples in each run, so that a failure comes from the change. No deadline, because the
# speed of the machine varies; pytest's timeout ends tests that hang.
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("ci")
# Imports and collection create a million objects that live to the end. Scanning them for garbage
# took a sixth of their time.
gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run system tests first, because they take longest and mostly wait."""
    items.sort(key=lambda item: item.path.relative_to(TESTS).parts[0] != "system")


def pytest_collection_finish() -> None:
    """Enable garbage collection, without the objects that the collection of tests created."""
    gc.enable()
    gc.freeze()


@pytest.fixture
def clock() -> Clock:
    """Return a clock that only the test moves."""
    return Clock()


@pytest.fixture(scope="session")
def azurite() -> Iterator[blob_emulator.Azurite]:
    """Run a Blob server for the session; tests use distinct container names."""
    with blob_emulator.server() as running:
        yield running


@pytest.fixture(scope="session")
def migrated() -> Iterator[str]:
    """Yield the URL of a database with the newest schema, created once per test process."""
    with test_postgres.server() as data:
        postgres.create_database(data)
        url = postgres.database_url(data)
        command.upgrade(test_postgres.migrations(url), "head")
        yield url


@pytest.fixture(scope="session")
def emptier(migrated: str) -> Iterator[test_postgres.Emptier]:
    """Yield the object that empties the database after each test."""
    with closing(test_postgres.Emptier(migrated.replace("+psycopg", ""))) as test_database:
        yield test_database


@pytest.fixture
def database_url(migrated: str, emptier: test_postgres.Emptier) -> Iterator[str]:
    """Yield the URL of a migrated database for this test only, and empty it afterwards."""
    yield migrated
    emptier.empty()


@pytest.fixture(scope="session")
def shared_engine(migrated: str) -> AsyncEngine:
    """Return an engine for the session, so that compiled statements stay cached."""
    return make_engine(migrated, pool_size=10)


@pytest.fixture
async def engine(shared_engine: AsyncEngine, database_url: str) -> AsyncIterator[AsyncEngine]:
    """Yield an engine on the test's database, with connections of the test's event loop.

    A connection that a task still uses would not be closed, and fail another test.
    """
    yield shared_engine
    pool = shared_engine.pool
    assert isinstance(pool, AsyncAdaptedQueuePool)
    await waiting.until_true(lambda: pool.checkedout() == 0)
    await shared_engine.dispose()
