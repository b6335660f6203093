"""One replica lists all scale sets, and every replica reads the list."""

from dataclasses import replace
from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.cloud.fake import FakeCloud
from service.db.attempts import attempts
from service.db.cloud import scale_set_cache
from service.db.schema import tables
from service.domain.cloud.fleet import ScaleSet, ScaleSetSpec
from service.reconciler.cloud.lister import Lister
from tests.clock import Clock
from tests.integration.db.rows import add_attempt, add_job
from tests.world import SPOT

EVERY = timedelta(seconds=10)


def spec(name: str) -> ScaleSetSpec:
    return ScaleSetSpec(name=name, offering=SPOT, instance_count=2, cloud_init="")


async def test_one_replica_lists_for_all(engine: AsyncEngine, clock: Clock) -> None:
    cloud = FakeCloud(now=clock)
    await cloud.create(spec("rk-1"))
    clock.advance(seconds=600)
    replicas = [Lister(engine=engine, cloud=cloud, interval=EVERY, now=clock) for _ in "abc"]
    before = cloud.calls

    for replica in replicas:
        await replica.run_once()

    assert cloud.calls - before == 1
    assert {name for r in replicas if r.newest_list for name in r.newest_list.sets} == {"rk-1"}
    assert all(r.fresh_list() for r in replicas)
    clock.advance(seconds=31)
    assert not any(r.fresh_list() for r in replicas)


async def test_a_machine_that_goes_is_noticed_by_the_next_list(
    engine: AsyncEngine, clock: Clock
) -> None:
    cloud = FakeCloud(now=clock)
    lister = Lister(engine=engine, cloud=cloud, interval=EVERY, now=clock)
    async with engine.begin() as conn:
        await add_job(conn, clock())
        later = clock() + timedelta(days=1)
        await add_attempt(conn, clock(), due_at=later)
    await cloud.create(spec("rk-1"))
    clock.advance(seconds=600)
    machines = [i.vm_id for i in (await cloud.get("rk-1")).instances]
    async with engine.begin() as conn:
        await conn.execute(tables.attempts.update().values(vm_ids=machines, seen_at=clock()))
    await lister.run_once()
    quiet = await _due(engine, clock)
    cloud.evict("rk-1")
    clock.advance(seconds=EVERY.total_seconds())

    await lister.run_once()

    assert quiet == []
    assert await _due(engine, clock) == ["att-1"]


async def test_a_list_that_comes_late_replaces_no_newer_one(
    engine: AsyncEngine, clock: Clock
) -> None:
    async with engine.begin() as conn:
        await scale_set_cache.claim(conn, clock(), EVERY)
        await scale_set_cache.publish(conn, clock(), [], clock() + EVERY)
        before = clock() - EVERY
        old = replace(await _described(clock), name="rk-old")
        await scale_set_cache.publish(conn, before, [old], clock() + EVERY)
        found = await scale_set_cache.latest(conn, None)

    assert found is not None
    assert found.sets == {}


async def test_a_set_that_is_listed_while_its_creation_is_deferred_is_looked_at_at_once(
    engine: AsyncEngine, clock: Clock
) -> None:
    cloud, later = FakeCloud(now=clock), clock() + timedelta(minutes=20)
    deferred = {"deferred_call": "create", "deferred_until": later, "due_at": later}
    async with engine.begin() as conn:
        for name in ("1", "2"):
            await add_job(conn, clock(), id=f"job-{name}")
            of_job = {"id": f"att-{name}", "job_id": f"job-{name}", "state": "provisioning"}
            await add_attempt(conn, clock(), **of_job, **deferred)
    await cloud.create(spec("rk-1"))  # accepted, and to be repeated
    clock.advance(seconds=60)

    await Lister(engine=engine, cloud=cloud, interval=EVERY, now=clock).run_once()

    assert await _due(engine, clock) == ["att-1"]


async def _described(clock: Clock) -> ScaleSet:
    cloud = FakeCloud(now=clock)
    await cloud.create(spec("rk-1"))
    clock.advance(seconds=600)
    return await cloud.get("rk-1")


async def _due(engine: AsyncEngine, clock: Clock) -> list[str]:
    async def look(conn: AsyncConnection) -> list[str]:
        return [row.id for _, row in await attempts.claim_due(conn, clock(), 10)]

    async with engine.connect() as conn:
        return await look(conn)  # not committed: the lease is given back
