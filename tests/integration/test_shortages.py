"""Many jobs and one shortage: they are refused in one moment, and one of them finds out its end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db import shortages
from service.db.shortage_tables import shortages as table
from service.db.tables import attempts
from service.domain.shortage import FIRST, Shortage
from tests import waiting
from tests.integration.rows import blocked
from tests.world import SPOT, World

JOBS = 6


async def known(world: World) -> Shortage | None:
    """What all jobs know of the one place."""
    async with world.engine.connect() as conn:
        return (await shortages.of(conn, [SPOT])).get(SPOT)


async def live(world: World) -> int:
    """Attempts that are under way."""
    async with world.engine.connect() as conn:
        query = select(attempts.c.id).where(attempts.c.state.not_in(("terminating", "ended")))
        return len((await conn.execute(query)).all())


async def all_refused(world: World) -> Shortage:
    """Jobs that have asked at one moment and were refused."""
    world.cloud.sold_out.add(SPOT)
    for _ in range(JOBS):
        await world.submit()
    for _ in range(5):
        await world.tick(1, seconds=5)
        if found := await known(world):
            return found
    raise AssertionError("nobody was refused")


@asynccontextmanager
async def as_they_ask(world: World, jobs: int) -> AsyncIterator[AsyncConnection]:
    """So many have read that the shortage is over, and none has written that it asks."""
    async with world.engine.connect() as conn, conn.begin():
        await conn.execute(select(table).with_for_update())
        asking = asyncio.create_task(world.jobs.run_once())
        await waiting.until(lambda: blocked(world.engine), lambda many: many == jobs)
        yield conn
    await asking


async def test_refusals_of_one_moment_are_one_refusal(world: World) -> None:
    found = await all_refused(world)

    assert found.in_a_row == 1
    assert found.ends_at - found.since == FIRST


async def test_a_refusal_of_who_asked_to_find_out_is_one_more(world: World) -> None:
    before = await all_refused(world)
    world.clock.advance(seconds=2 * FIRST.total_seconds())
    await world.tick(2)

    after = await known(world)
    assert after is not None
    assert (after.in_a_row, after.since) == (2, before.since)


async def test_of_many_jobs_one_asks_when_a_shortage_is_over(world: World) -> None:
    await all_refused(world)
    world.cloud.sold_out.clear()
    world.clock.advance(seconds=2 * FIRST.total_seconds())

    async with as_they_ask(world, JOBS):
        assert await live(world) == 0

    assert await live(world) == 1
    await world.tick(20)
    assert await live(world) == JOBS, "it was given machines"


async def test_a_shortage_that_has_just_ended_is_not_brought_back_by_who_read_of_it(
    world: World,
) -> None:
    await all_refused(world)
    world.cloud.sold_out.clear()
    world.clock.advance(seconds=2 * FIRST.total_seconds())

    async with as_they_ask(world, JOBS) as another:
        await another.execute(delete(table))  # as an attempt does that is given machines

    assert await known(world) is None
    await world.tick(2)
    assert await live(world) == JOBS
