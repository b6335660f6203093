"""One replica lists all scale sets for every replica, and what that saves in calls."""

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.cloud.fake import FakeCloud
from service.db.attempts import attempts
from service.db.cloud import scale_set_cache
from service.db.schema import tables
from service.domain.cloud.fleet import ScaleSet, ScaleSetSpec
from service.domain.cloud.scale_set_list import OBSERVATION_INTERVAL
from service.reconciler.cloud.lister import Lister
from tests.clock import Clock
from tests.integration.db.rows import add_attempt, add_job
from tests.nodes.scripted_node import ScriptedNode, boot, start_training, train
from tests.world import SPOT, World
from trainer.contract import NodePhase

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
        later_at = clock() + timedelta(days=1)
        await add_attempt(conn, clock(), due_at=later_at)
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
        cached = await scale_set_cache.latest(conn, None)

    assert cached is not None
    assert cached.sets == {}


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


def lister(world: World) -> Lister:
    return Lister(engine=world.engine, cloud=world.cloud, interval=EVERY, now=world.clock)


async def test_a_replica_with_an_older_list_sees_the_machine_that_another_one_misses(
    world: World,
) -> None:
    job, _, _ = await start_training(world)
    asker, reader = lister(world), lister(world)
    await asker.run_once()
    await reader.run_once()
    world.attempts = replace(world.attempts, lister=reader)
    world.clock.advance(seconds=15)
    await world.attempts.run_once()  # so it is left alone for a while
    (attempt,) = await world.attempts_of(job)
    world.cloud.evict("rk-" + attempt["id"].removeprefix("att-"))
    world.clock.advance(seconds=1)
    before = reader.newest_list
    await asker.run_once()

    await world.attempts.run_once()

    events = (await world.call("GET", f"/v1/fine_tuning/jobs/{job}/events")).json()["data"]
    assert reader.fresh_list() is before, "it has read no newer list, and believes its own"
    assert {e["code"] for e in events} & {"generation.halted", "attempt.terminating"}


HOUR = timedelta(hours=1)
ROUND = timedelta(seconds=10)
_SETTLES = 30  # rounds, until all is as it stays


@dataclass
class Counting(FakeCloud):
    """Looks at sets, and lists of all."""

    asked: Counter[str] = field(default_factory=Counter)

    async def get(self, name: str) -> ScaleSet:
        self.asked[name] += 1
        return await super().get(name)

    async def list_owned(self) -> list[ScaleSet]:
        self.asked["list"] += 1
        return await super().list_owned()


async def test_a_quiet_attempt_is_asked_for_every_ten_minutes_and_all_are_listed_every_ten_seconds(
    world: World,
) -> None:
    cloud = Counting(**vars(world.cloud))
    world.cloud, world.attempts = cloud, replace(world.attempts, cloud=cloud)
    training: list[tuple[ScriptedNode, int]] = []
    for _ in range(2):
        nodes = await boot(world, (await world.submit())["id"])
        number = await train(world, nodes, step=1)
        training += [(node, number) for node in nodes]
    world.attempts = replace(world.attempts, lister=(listing := lister(world)))
    for n in range(-_SETTLES, HOUR // ROUND):
        if n == 0:
            cloud.asked.clear()
        if n % 6 == 0:
            for node, number in training:
                await node.say(NodePhase.RUNNING, number, step=2)
        world.clock.advance(seconds=ROUND.total_seconds())
        await listing.run_once()
        await world.attempts.run_once()
    lists = cloud.asked.pop("list")

    assert abs(lists - HOUR // ROUND) <= 1
    assert len(cloud.asked) == 2
    assert all(4 <= calls <= 8 for calls in cloud.asked.values()), cloud.asked
    assert HOUR / OBSERVATION_INTERVAL == 6
