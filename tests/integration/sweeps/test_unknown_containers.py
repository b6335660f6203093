"""Containers of unknown jobs and strays with our tag are told of, and left alone."""

import asyncio
import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from service.api.app import make_app
from service.cloud.fake import FakeCloud
from service.cloud.provider import JOB_TAG, OWNER_TAG, Misconfigured
from service.db.schema import tables
from service.domain.cloud.fleet import TaggedResource
from service.domain.ids import new_id
from service.operations.storage.containers import GRACE
from service.reconciler.sweeps import untracked_resources
from service.reconciler.sweeps.containers import NAMES_SHOWN, ContainerWatch
from service.reconciler.sweeps.untracked_resources import ALARM, UntrackedResourceSweep
from service.storage.fake import MemoryStore
from service.storage.store import BlobStore, Container, StorageError
from tests.clock import Clock
from tests.integration.db.rows import add_job
from tests.world import World, client

BORN = datetime(2026, 11, 1, tzinfo=UTC)
NOTED = ("containers.unknown", "containers.not_listed")


def watch_of(world: World, store: BlobStore | None = None) -> ContainerWatch:
    return ContainerWatch(engine=world.engine, store=store or world.store, now=world.clock)


async def make_strangers(store: BlobStore, number: int = 1) -> list[str]:
    """So many containers of jobs that nobody has submitted here, by name."""
    names = sorted(new_id("ftjob", BORN) for _ in range(number))
    for name in names:
        await store.create_container(name)
    return names


def noted_records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [r for r in caplog.records if r.message in NOTED]


async def count_unknown(world: World, store: BlobStore | None = None) -> object:
    """As the audit's summary has it."""
    parts = replace(world.parts, store=store or world.store)
    async with client(make_app(parts)) as http:
        headers = {"authorization": f"Bearer {world.key}"}
        response = await http.get("/v1/organization/audit", headers=headers)
    return response.json()["summary"]["unknown_containers"]


async def test_containers_of_unknown_jobs_are_reported_once_and_kept(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    names = await make_strangers(world.store, NAMES_SHOWN + 2)
    for name in ("files", "base-somebodys", "backups"):  # others of the account
        await world.store.create_container(name)
    watch = watch_of(world)

    first, second = await watch.run_once(), await watch.run_once()

    (record,) = noted_records(caplog)
    assert (first, second) == (names, [])
    assert (record.levelname, record.message) == ("WARNING", "containers.unknown")
    assert (vars(record)["count"], vars(record)["first"]) == (NAMES_SHOWN + 2, names[:NAMES_SHOWN])
    assert [c.name for c in await world.store.list_containers("ftjob-")] == names


async def test_the_container_of_a_job_is_known_from_its_first_moment_to_long_after_its_end(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    job = await world.submit()
    await world.tick(2)
    names = [c.name for c in await world.store.list_containers("ftjob-")]
    known_containers = await watch_of(world).run_once()
    await world.call("POST", f"/v1/fine_tuning/jobs/{job['id']}/cancel")
    await world.tick(20)
    world.clock.advance(days=400)

    assert (names, known_containers) == ([job["id"]], [])
    assert await watch_of(world).run_once() == []
    assert noted_records(caplog) == []


async def test_a_new_container_is_not_reported(world: World) -> None:
    store = MemoryStore(now=world.clock)
    names = await make_strangers(store)
    watch = watch_of(world, store)

    world.clock.advance(seconds=GRACE.total_seconds() - 1)
    before = await watch.run_once()
    world.clock.advance(seconds=1)

    assert (before, await watch.run_once()) == ([], names)


async def test_after_a_restore_containers_of_forgotten_jobs_are_reported_and_counted(
    world: World,
) -> None:
    ids = sorted(new_id("ftjob", BORN) for _ in range(3))
    for job_id in ids:
        await world.store.create_container(job_id)
        async with world.engine.begin() as conn:
            await add_job(conn, world.clock(), id=job_id)
    deletion = tables.jobs.delete().where(tables.jobs.c.id == ids[1])
    assert await count_unknown(world) == 0

    async with world.engine.begin() as conn:
        await conn.execute(deletion)

    assert await watch_of(world).run_once() == [ids[1]]
    assert await count_unknown(world) == 1


class AwayStore(MemoryStore):
    """It does not answer at first."""

    refusals: int = 1

    async def list_containers(self, prefix: str) -> list[Container]:
        if self.refusals:
            self.refusals -= 1
            raise StorageError("no route to Blob")
        return await super().list_containers(prefix)


async def test_a_store_that_is_away_is_asked_again_and_the_audit_says_that_it_does_not_know(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    store, other_store = AwayStore(), AwayStore()
    names = await make_strangers(store)
    watch = watch_of(world, store)

    first, second = await watch.run_once(), await watch.run_once()

    assert (first, second) == ([], names)
    assert [r.message for r in noted_records(caplog)] == [*reversed(NOTED)]
    assert [await count_unknown(world, other_store) for _ in range(2)] == [None, 0]


DISK = "Microsoft.Compute/disks/old"


def watched(engine: AsyncEngine, clock: Clock) -> tuple[FakeCloud, UntrackedResourceSweep]:
    """Return a cloud with a disk of ours and one of a neighbour."""
    cloud = FakeCloud(now=clock)
    tags = {OWNER_TAG: cloud.owner, JOB_TAG: "ftjob-1"}
    disk = TaggedResource(kind="Microsoft.Compute/disks", name="old", region="eastus", tags=tags)
    cloud.untracked += [disk, replace(disk, name="theirs", tags={OWNER_TAG: "neighbour"})]
    return cloud, UntrackedResourceSweep(engine=engine, cloud=cloud, now=clock)


async def test_an_untracked_resource_is_reported_once_a_day(
    engine: AsyncEngine, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    cloud, watch = watched(engine, clock)
    counts = []
    with caplog.at_level(logging.ERROR):
        for _ in range(4 * 25):
            counts += await watch.run_once()
            clock.advance(minutes=15)

    assert counts == [DISK, DISK]
    alarms = [vars(r) for r in caplog.records if r.getMessage() == ALARM]
    assert [(a["resource"], a["region"], a["job"]) for a in alarms] == [
        (DISK, "eastus", "ftjob-1")
    ] * 2
    assert len(cloud.untracked) == 2, "a person's disk was deleted"


async def test_what_goes_before_the_next_look_is_no_alarm(
    engine: AsyncEngine, clock: Clock
) -> None:
    cloud, watch = watched(engine, clock)
    untracked = list(cloud.untracked)

    counts = [await watch.run_once()]
    cloud.untracked.clear()
    clock.advance(minutes=15)
    counts.append(await watch.run_once())
    cloud.untracked += untracked
    clock.advance(minutes=15)
    counts.append(await watch.run_once())

    assert counts == [[], [], []]


async def test_a_list_that_is_refused_forgets_nothing(
    engine: AsyncEngine, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    cloud, watch = watched(engine, clock)

    await watch.run_once()
    clock.advance(minutes=15)
    cloud.fail_next = [Misconfigured("no role")]
    with caplog.at_level(logging.WARNING):
        count = await watch.run_once()

    assert (count, await watch.run_once()) == ([], [DISK])
    assert "sweep.list_failed" in caplog.messages


async def test_a_replica_whose_clock_was_ahead_delays_no_alarm(
    engine: AsyncEngine, clock: Clock
) -> None:
    cloud, watch = watched(engine, clock)
    ahead_clock = Clock()
    ahead_clock.at = clock() + timedelta(days=365)
    skewed_watch = replace(watch, now=ahead_clock)
    for _ in range(2):
        await skewed_watch.run_once()
        ahead_clock.advance(minutes=15)

    first = await watch.run_once()
    clock.advance(minutes=15)

    assert (first, await watch.run_once()) == ([], [DISK])
    assert len(cloud.untracked) == 2


async def test_a_process_that_is_killed_while_it_raises_an_alarm_leaves_it_to_the_next_look(
    engine: AsyncEngine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(_: str, __: TaggedResource) -> None:
        raise asyncio.CancelledError

    _, watch = watched(engine, clock)
    await watch.run_once()
    clock.advance(minutes=15)
    with monkeypatch.context() as patch:
        patch.setattr(untracked_resources, "_log_alarm", die)
        with pytest.raises(asyncio.CancelledError):
            await watch.run_once()

    assert await watch.run_once() == [DISK]
