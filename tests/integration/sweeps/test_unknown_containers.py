"""Containers of jobs that the database does not know are told of once, counted, and left alone."""

import logging
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from service.api.app import make_app
from service.db.schema import tables
from service.domain.ids import new_id
from service.operations.storage.containers import GRACE
from service.reconciler.sweeps.containers import NAMES_SHOWN, ContainerWatch
from service.storage.fake import MemoryStore
from service.storage.store import BlobStore, Container, StorageError
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
        answer = await http.get("/v1/organization/audit", headers=headers)
    return answer.json()["summary"]["unknown_containers"]


async def test_containers_of_unknown_jobs_are_reported_once_and_kept(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    names = await make_strangers(world.store, NAMES_SHOWN + 2)
    for name in ("files", "base-somebodys", "backups"):  # others of the account
        await world.store.create_container(name)
    watch = watch_of(world)

    first, second = await watch.run_once(), await watch.run_once()

    (told,) = noted_records(caplog)
    assert (first, second) == (names, [])
    assert (told.levelname, told.message) == ("WARNING", "containers.unknown")
    assert (vars(told)["count"], vars(told)["first"]) == (NAMES_SHOWN + 2, names[:NAMES_SHOWN])
    assert [c.name for c in await world.store.list_containers("ftjob-")] == names


async def test_the_container_of_a_job_is_known_from_its_first_moment_to_long_after_its_end(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    job = await world.submit()
    await world.tick(2)
    made = [c.name for c in await world.store.list_containers("ftjob-")]
    known = await watch_of(world).run_once()
    await world.call("POST", f"/v1/fine_tuning/jobs/{job['id']}/cancel")
    await world.tick(20)
    world.clock.advance(days=400)

    assert (made, known) == ([job["id"]], [])
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
    forgotten = tables.jobs.delete().where(tables.jobs.c.id == ids[1])
    assert await count_unknown(world) == 0

    async with world.engine.begin() as conn:
        await conn.execute(forgotten)

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
    store, other = AwayStore(), AwayStore()
    names = await make_strangers(store)
    watch = watch_of(world, store)

    first, second = await watch.run_once(), await watch.run_once()

    assert (first, second) == ([], names)
    assert [r.message for r in noted_records(caplog)] == [*reversed(NOTED)]
    assert [await count_unknown(world, other) for _ in range(2)] == [None, 0]
