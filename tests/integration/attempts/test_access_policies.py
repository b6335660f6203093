"""Nodes write by policies of their attempt, or by short grants where the account has no key."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from sqlalchemy import text

from service.api.app import make_app
from service.operations.attempts import access_policies
from service.operations.nodes.grants import Granter
from service.reconciler.attempts.access_policies import AccessPolicies
from service.storage.fake import MemoryStore
from service.storage.store import POLICIES, StorageError
from tests.integration.sweeps.checkpointed_jobs import cancel_job
from tests.nodes.scripted_node import ScriptedNode, boot
from tests.world import World, client
from trainer.contract import Grants

LIFE = timedelta(hours=24)


def policies(world: World, store: MemoryStore | None = None) -> AccessPolicies:
    """As main makes it."""
    return AccessPolicies(
        engine=world.engine, store=store or world.store, lifetime=LIFE, now=world.clock
    )


async def test_a_policy_is_there_before_the_machines_and_gone_after_them(world: World) -> None:
    job = (await world.submit())["id"]
    await world.tick(3)
    await policies(world).run_once()
    before = dict(world.store.policies[job])
    nodes = await boot(world, job)
    (attempt,) = before
    seat = nodes[0].seat
    assert seat is not None

    assert seat.grants.job == f"memory://{job}?si={attempt}"
    assert before[attempt] <= world.clock() + LIFE
    await end(world, job)
    revoked = await policies(world).run_once()
    assert revoked == [job]
    assert world.store.policies[job] == {}
    assert await policies(world).run_once() == []


async def test_a_node_that_registers_has_the_policies_written_whatever_was_there(
    world: World,
) -> None:
    job = (await world.submit())["id"]
    nodes = await boot(world, job)  # quicker than the reconciler of policies
    seat = nodes[0].seat
    (attempt,) = world.store.policies.pop(job)
    await nodes[0].register()

    assert seat is not None
    assert seat.grants.job == f"memory://{job}?si={attempt}"
    assert list(world.store.policies[job]) == [attempt]


async def test_a_policy_is_renewed_at_half_of_its_life(world: World) -> None:
    job = (await world.submit())["id"]
    await boot(world, job)
    world.clock.advance(seconds=LIFE.total_seconds() / 2 - 60)
    first_run = await policies(world).run_once()
    world.clock.advance(seconds=120)

    assert (first_run, await policies(world).run_once()) == ([], [job])
    assert list(world.store.policies[job].values()) == [world.clock() + LIFE]


async def test_the_newest_attempts_get_the_policies_of_a_container(world: World) -> None:
    job = (await world.submit())["id"]
    await boot(world, job)
    (running,) = world.store.policies[job]
    await more_attempts(world, job, POLICIES)
    await access_policies.update_policies(world.engine, world.store, job, LIFE, world.clock())

    assert len(world.store.policies[job]) == POLICIES
    assert running not in world.store.policies[job]


async def test_a_late_write_of_old_policies_is_followed_by_the_new_ones(world: World) -> None:
    job = (await world.submit())["id"]
    await boot(world, job)

    @dataclass
    class Slow(MemoryStore):
        written: list[set[str]] = field(default_factory=list)

        async def set_access_policies(
            self, container: str, policies: Mapping[str, datetime], *, permissions: str
        ) -> None:
            if not self.written:
                await more_attempts(world, job, 1)
            self.written.append(set(policies))
            await super().set_access_policies(container, policies, permissions=permissions)

    slow_store = Slow(world.store._containers)
    await access_policies.update_policies(world.engine, slow_store, job, LIFE, world.clock())

    assert [len(names) for names in slow_store.written] == [1, 2]
    assert len(slow_store.policies[job]) == 2


async def test_what_the_store_refuses_is_tried_again(world: World) -> None:
    @dataclass
    class Away(MemoryStore):
        async def set_access_policies(self, *_: object, **__: object) -> None:
            raise StorageError("away")

    job = (await world.submit())["id"]
    await boot(world, job)
    await end(world, job)

    assert await policies(world, Away()).run_once() == [job]
    assert len(world.store.policies[job]) == 1
    assert await policies(world).run_once() == [job]
    assert world.store.policies[job] == {}


async def test_a_container_that_is_gone_has_nothing_to_revoke(world: World) -> None:
    job = (await world.submit())["id"]
    await boot(world, job)
    await end(world, job)
    await world.store.delete_container(job)

    assert [await policies(world).run_once() for _ in range(2)] == [[job], []]


async def end(world: World, job: str) -> None:
    """Cancel it, and see its machines be gone."""
    await cancel_job(world, job)
    for _ in range(50):
        response = await world.call("GET", f"/v1/fine_tuning/jobs/{job}/attempts")
        if {attempt["state"] for attempt in response.json()["data"]} == {"ended"}:
            return
        await world.tick()
    raise AssertionError(f"{job} has machines yet")


async def more_attempts(world: World, job: str, count: int) -> None:
    """Later ones, whose machines are being deleted."""
    copied = """
        insert into attempts (id, job_id, number, region, vm_size, capacity_type, hourly,
            on_demand_hourly, instance_count, processes_per_node, state, since, outcome, created_at,
            due_at)
        select a.id || '-' || n, job_id, number + n, region, vm_size, capacity_type, hourly,
            on_demand_hourly, instance_count, processes_per_node, 'terminating', since, 'evicted',
            created_at, due_at
        from attempts a, generate_series(1, :count) n where a.job_id = :job
    """
    async with world.engine.begin() as conn:
        await conn.execute(text(copied), {"job": job, "count": count})


HOUR = timedelta(hours=1)


@pytest.fixture
async def keyless(world: World) -> AsyncIterator[World]:
    """Yield a world whose account has no key, with grants of an hour."""
    world.store.has_access_policies = False
    granter = Granter(engine=world.engine, store=world.store, lifetime=HOUR)
    parts = replace(world.parts, granter=granter, long_poll=timedelta(0))
    async with client(make_app(parts)) as http:
        before, world.http = world.http, http
        yield world
        world.http = before


def ends(grants: Grants | None) -> datetime:
    """When the URL of the job's container ends."""
    assert grants is not None
    query = parse_qs(urlsplit(grants.job).query)
    assert query["sp"] == ["racwdl"]
    return datetime.strptime(query["se"][0], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def seated(node: ScriptedNode) -> Grants:
    assert node.seat is not None
    return node.seat.grants


async def test_a_node_writes_by_a_url_of_an_hour_and_hears_of_a_new_one_at_half_of_it(
    keyless: World,
) -> None:
    job = (await keyless.submit())["id"]
    node = (await boot(keyless, job))[0]
    first = ends(seated(node))
    keyless.clock.advance(seconds=HOUR.total_seconds() / 2 + 1)
    directive = await node.hear()

    assert abs(first - keyless.clock() - HOUR / 2) < timedelta(minutes=2)
    assert ends(directive.grants) == keyless.clock() + HOUR


async def test_a_node_whose_url_ran_out_gets_a_new_one_when_it_registers_again(
    keyless: World,
) -> None:
    job = (await keyless.submit())["id"]
    node = (await boot(keyless, job))[0]
    keyless.clock.advance(seconds=2 * HOUR.total_seconds())
    assert ends(seated(node)) < keyless.clock()
    await node.register()

    assert ends(seated(node)) == keyless.clock() + HOUR


async def test_no_policy_is_written_and_none_is_asked_for_again(keyless: World) -> None:
    job = (await keyless.submit())["id"]
    await boot(keyless, job)
    policies = AccessPolicies(
        engine=keyless.engine, store=keyless.store, lifetime=HOUR, now=keyless.clock
    )

    assert await policies.run_once() == []
    assert keyless.store.policies == {}
