"""Empty worlds for scenarios, each on an empty database, and whole lives in them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from random import Random

from alembic import command
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from rekindle.local import postgres
from service.db.core.engine import make_engine
from tests import postgres as test_postgres
from tests.clock import Clock
from tests.scenario.checkpoint_promises import WatchedStore
from tests.scenario.crew import APART, HELD_UP, SKEWS, Crew
from tests.scenario.plays.random_life import RandomLife
from tests.scenario.scenario import SLACK, Scenario
from tests.world import World, open_world


@contextmanager
def database() -> Iterator[str]:
    """Yield the URL of a migrated PostgreSQL of its own; what is committed outlives a restart."""
    with test_postgres.server() as data:
        postgres.create_database(data)
        lasting = f"alter database {postgres.DATABASE} set synchronous_commit = on"
        postgres.run_sql(data, lasting)
        url = postgres.database_url(data)
        command.upgrade(test_postgres.migrations(url), "head")
        yield url


async def restart(engine: AsyncEngine) -> None:
    """Shoot the server, with every connection and transaction, and start it again."""
    async with engine.connect() as conn:
        data = Path((await conn.execute(text("show data_directory"))).scalar_one())
    await asyncio.to_thread(postgres.stop_server, data)
    await asyncio.to_thread(postgres.start_server, data, *test_postgres.SETTINGS)


@asynccontextmanager
async def an_engine(url: str) -> AsyncIterator[AsyncEngine]:
    """Yield an engine on the database, and close it at the end."""
    engine = make_engine(url, pool_size=10)
    try:
        yield engine
    finally:
        await engine.dispose()


@asynccontextmanager
async def a_world(engine: AsyncEngine, url: str) -> AsyncIterator[World]:
    """Yield an empty service, with its logs off.

    ``world.engine`` is the looker-on's: a connection that `disturb` ends must not end the life.
    The replicas use ``world.parts.engine``.
    """
    logging.disable(logging.CRITICAL)
    try:
        async with engine.begin() as conn:
            await conn.execute(text(test_postgres.EMPTY))
        async with open_world(engine, url, Clock(), store=WatchedStore()) as world:
            world.engine = create_async_engine(engine.url, pool_size=1, pool_pre_ping=True)
            try:
                yield world
            finally:
                await world.engine.dispose()
    finally:
        logging.disable(logging.NOTSET)


async def live_at_random(url: str, seed: int) -> list[str]:
    """Live one life in which anything may happen; return the broken promises."""
    rng = Random(seed)
    life = RandomLife(rng)
    async with an_engine(url) as engine, a_world(engine, url) as world:
        scenario = Scenario(world, life.play(), dice=rng)
        scenario.kills_supervisor = life.kills_supervisor
        if rng.random() < 0.5:
            skews = rng.choice((SKEWS, SKEWS[:1], SKEWS[:1] * 2))
            crew = Crew(world, scenario.cloud, rng, partial(restart, world.engine), skews=skews)
            scenario.be_served_by(crew, APART, SLACK + HELD_UP)
            scenario.disturb = crew.disturb
        broken = await scenario.run()
        return broken + [line for job in scenario.jobs for line in life.broken_by_the_end(job)]
