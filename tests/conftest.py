"""Fixtures for every test: the clock, and a migrated PostgreSQL that is empty before each test."""

import gc
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from hypothesis import settings
from sqlalchemy.ext.asyncio import AsyncEngine

from rekindle.local import postgres
from service.db.core.engine import make_engine
from tests import azurite as blob_emulator
from tests import postgres as test_postgres
from tests.clock import Clock

TESTS = Path(__file__).resolve().parent
# Before torch is there. Workers share the cores: threads that wait for each other inside an
# operation made a test of 5 seconds one of 120.
os.environ["OMP_NUM_THREADS"] = "1"  # noqa: TID251 - tests are a program of their own
# The same examples every time: a search for new ones is not what a change is judged by. Nor is the
# speed of the machine: pytest's timeout ends what hangs.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci")
# Imports and collection make a million objects that live to the end: a sixth of their time went
# into looking for garbage among them.
gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """System tests take longest and wait most, so they come first, beside all others."""
    items.sort(key=lambda item: item.path.relative_to(TESTS).parts[0] != "system")


def pytest_collection_finish() -> None:
    """Look for garbage from now on, but not among what the collection has made."""
    gc.enable()
    gc.freeze()


@pytest.fixture
def clock() -> Clock:
    """The time, standing still."""
    return Clock()


@pytest.fixture(scope="session")
def azurite() -> Iterator[blob_emulator.Azurite]:
    """A Blob server; tests keep apart by the names of their containers."""
    with blob_emulator.server() as running:
        yield running


@pytest.fixture(scope="session")
def migrated() -> Iterator[str]:
    """URL of a database with the newest schema; made once per test process."""
    with test_postgres.server() as data:
        postgres.create_database(data)
        url = postgres.url(data)
        command.upgrade(test_postgres.migrations(url), "head")
        yield url


@pytest.fixture(scope="session")
def emptier(migrated: str) -> Iterator[test_postgres.Emptier]:
    """What empties the database between two tests."""
    with closing(test_postgres.Emptier(migrated.replace("+psycopg", ""))) as made:
        yield made


@pytest.fixture
def database_url(migrated: str, emptier: test_postgres.Emptier) -> Iterator[str]:
    """URL of a migrated database that the test has for itself; emptied after it."""
    yield migrated
    emptier.empty()


@pytest.fixture(scope="session")
def shared_engine(migrated: str) -> AsyncEngine:
    """An engine that keeps its compiled statements from test to test."""
    return make_engine(migrated, pool_size=10)


@pytest.fixture
async def engine(shared_engine: AsyncEngine, database_url: str) -> AsyncIterator[AsyncEngine]:
    """An engine on the test's database; its connections belong to the test's event loop."""
    yield shared_engine
    await shared_engine.dispose()
