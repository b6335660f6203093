"""Many jobs and one shortage: they are refused in one moment, and one of them finds out its end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from sqlalchemy import case, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.cloud.provider import InsufficientCapacity
from service.db.schema.shortage_tables import shortages as table
from service.db.schema.tables import attempts
from service.db.schema.tables import jobs as jobs_table
from service.db.spot import capacity_outages
from service.domain.cloud.fleet import ScaleSetSpec
from service.domain.spot.capacity_backoff import FIRST_BACKOFF, Shortage
from tests import waiting
from tests.integration.db.rows import blocked
from tests.world import SPOT, World

JOBS = 6
GANG = 8


async def known_shortage(world: World) -> Shortage | None:
    """Return what all jobs know of the one place."""
    async with world.engine.connect() as conn:
        return (await capacity_outages.open_shortages(conn, [SPOT])).get(SPOT)


async def count_live(world: World) -> int:
    """Return how many attempts have not ended."""
    async with world.engine.connect() as conn:
        query = select(attempts.c.id).where(attempts.c.state.not_in(("terminating", "ended")))
        return len((await conn.execute(query)).all())


async def all_refused(world: World) -> Shortage:
    """Jobs that have asked at one moment and were refused."""
    world.cloud.sold_out.add(SPOT)
    for _ in range(JOBS):
        await world.submit()
    return await until_refused(world)


async def until_refused(world: World) -> Shortage:
    """Once the first has been refused."""
    for _ in range(5):
        await world.tick(1, seconds=5)
        if shortage := await known_shortage(world):
            return shortage
    raise AssertionError("nobody was refused")


@asynccontextmanager
async def block_askers(world: World, jobs: int) -> AsyncIterator[AsyncConnection]:
    """So many have read that they may ask, and none has written that it does."""
    async with world.engine.connect() as conn, conn.begin():
        await conn.execute(select(table).with_for_update())
        task = asyncio.create_task(world.jobs.run_once())
        await waiting.until(lambda: blocked(world.engine), lambda count: count == jobs)
        yield conn
    await task


async def test_refusals_of_one_moment_are_one_refusal(world: World) -> None:
    refusals = await all_refused(world)

    assert refusals.in_a_row == 1
    assert refusals.ends_at - refusals.since == FIRST_BACKOFF


async def test_a_refused_probe_is_one_more_refusal(world: World) -> None:
    before = await all_refused(world)
    world.clock.advance(seconds=2 * FIRST_BACKOFF.total_seconds())
    await world.tick(2)

    after = await known_shortage(world)
    assert after is not None
    assert (after.in_a_row, after.since) == (2, before.since)


async def test_one_of_many_jobs_probes_for_the_end_of_a_shortage(world: World) -> None:
    await all_refused(world)
    world.cloud.sold_out.clear()
    world.clock.advance(seconds=2 * FIRST_BACKOFF.total_seconds())

    async with block_askers(world, JOBS):
        assert await count_live(world) == 0

    assert await count_live(world) == 1
    await world.tick(20)
    assert await count_live(world) == JOBS, "it was given machines"


async def test_a_shortage_that_has_just_ended_is_not_restored_by_older_reads(world: World) -> None:
    await all_refused(world)
    world.cloud.sold_out.clear()
    world.clock.advance(seconds=2 * FIRST_BACKOFF.total_seconds())

    async with block_askers(world, JOBS) as blockers:
        await blockers.execute(delete(table))  # as an attempt does that is given machines

    assert await known_shortage(world) is None
    await world.tick(2)
    assert await count_live(world) == JOBS


def room_for(world: World, machines: int) -> list[int]:
    """Azure makes no larger scale sets; returns those that it is asked for, as they come."""
    create, sizes = world.cloud.create, list[int]()

    async def limited(spec: ScaleSetSpec) -> None:
        sizes.append(spec.instance_count)
        if spec.instance_count > machines:
            raise InsufficientCapacity("AllocationFailed", "AllocationFailed")
        await create(spec)

    world.cloud.create = limited  # type: ignore[method-assign]  # of this world alone
    return sizes


async def submit_job(world: World, nodes: int) -> str:
    return str((await world.submit(infrastructure={"nodes": nodes}))["id"])


async def gang_first(world: World, gang: str, pauses: int) -> None:
    """So many pauses pass, at the end of each of which the gang is the first to look."""
    is_gang, due_at = jobs_table.c.id == gang, jobs_table.c.due_at
    for _ in range(pauses):
        if shortage := await known_shortage(world):
            after = func.greatest(due_at, shortage.ends_at + FIRST_BACKOFF / 60)
            first = update(jobs_table).values(due_at=case((is_gang, shortage.ends_at), else_=after))
            async with world.engine.begin() as conn:
                await conn.execute(first)
            await world.tick(1, (shortage.ends_at - world.clock()).total_seconds())
        await world.tick(13, seconds=5)


async def test_a_gang_that_is_always_refused_and_always_first_keeps_no_small_job_from_machines(
    world: World,
) -> None:
    room_for(world, 2)
    world.cloud.create_time = FIRST_BACKOFF / 3
    gang = await submit_job(world, GANG)
    await until_refused(world)
    small_jobs = [await submit_job(world, 1) for _ in range(3)]

    await gang_first(world, gang, 2)

    attempt_lists = [await world.attempts_of(job) for job in small_jobs]
    assert [[(a["state"], a["outcome"]) for a in of_job] for of_job in attempt_lists] == [
        [("starting", None)]
    ] * 3


async def test_one_of_many_small_jobs_asks_while_a_gang_is_refused(world: World) -> None:
    counts = room_for(world, 0)
    await submit_job(world, GANG)
    gang = await until_refused(world)
    for _ in range(JOBS):
        await submit_job(world, 1)

    await world.jobs.run_once()  # a new job comes a second time to ask
    world.clock.advance(seconds=1)

    async with block_askers(world, JOBS):
        pass
    await world.tick(4, seconds=5)

    assert counts == [GANG, 1]
    assert (gang.nodes, await known_shortage(world)) == (GANG, replace(gang, nodes=1))
