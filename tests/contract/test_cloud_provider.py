"""What every CloudProvider promises: the fake, and the Azure adapter on the emulator."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from uuid import uuid4

import pytest

from service.cloud.cloud_init import render
from service.cloud.fake import FakeCloud
from service.cloud.provider import (
    ATTEMPT_TAG,
    OWNER_TAG,
    CloudProvider,
    InsufficientCapacity,
    Misconfigured,
    ScaleSetNotFound,
)
from service.domain.fleet import Offering, ScaleSet, ScaleSetPhase, ScaleSetSpec
from service.domain.states import CapacityType
from tests.clock import Clock
from tests.contract.emulated import IMAGE, sign_in
from tests.emulator_process import Emulator
from tests.waiting import on, until

SPOT = Offering(
    region="eastus", vm_size="Standard_NC24ads_A100_v4", capacity_type=CapacityType.SPOT
)
SCARCE = replace(SPOT, region="westus3")  # accepted, and then there is no room
NOT_SOLD = replace(SPOT, region="northpole")  # refused at once

CREATING, READY, FAILED, DELETING = (
    ScaleSetPhase.CREATING,
    ScaleSetPhase.READY,
    ScaleSetPhase.FAILED,
    ScaleSetPhase.DELETING,
)


@dataclass(frozen=True, kw_only=True)
class World:
    """A cloud, what Azure does in it of its own accord, and how time passes there."""

    cloud: CloudProvider
    neighbour: CloudProvider  # the same cloud as another deployment sees it
    evict: Callable[[str, str], Awaitable[None]]
    until: Callable[..., Awaitable[ScaleSet]]

    async def seen(self, name: str, phase: ScaleSetPhase | None = None) -> ScaleSet:
        """The scale set as soon as it can be seen (in ``phase``)."""
        return await self.until(
            partial(_look, self.cloud, name),
            lambda found: found is not None and phase in {None, found.phase},
        )

    async def gone(self, name: str) -> None:
        """Wait until there is no such scale set."""
        await self.until(partial(_look, self.cloud, name), lambda found: found is None)


@pytest.fixture(params=["fake", "azure"])
async def world(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[World]:
    build = _fake_world(clock) if request.param == "fake" else _azure_world(request)
    async for made in build:
        yield made
        await made.cloud.close()
        await made.neighbour.close()


async def _fake_world(clock: Clock) -> AsyncIterator[World]:
    cloud = FakeCloud(now=clock, sold_out={NOT_SOLD}, sold_out_late={SCARCE})

    async def evict(name: str, instance_id: str) -> None:
        cloud.evict(name, instance_id)

    yield World(
        cloud=cloud,
        neighbour=replace(cloud, owner="neighbour"),
        evict=evict,
        until=partial(until, wait=on(clock), interval=5, deadline=600),
    )


async def _azure_world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    emulator: Emulator = request.getfixturevalue("emulator")
    full = {"region": SCARCE.region, "vm_size": SCARCE.vm_size, "available": 0}
    emulator.admin("capacity", full).raise_for_status()

    async def evict(name: str, instance_id: str) -> None:
        whom = {"scale_set": name, "instance_id": instance_id, "notice": False}
        emulator.admin("evict", whom).raise_for_status()

    yield World(
        cloud=sign_in(emulator, f"owner-{uuid4().hex}"),
        neighbour=sign_in(emulator, "neighbour"),
        evict=evict,
        until=partial(until, interval=0.05),
    )


@pytest.fixture
def spec() -> ScaleSetSpec:
    return _spec()


class TestCreating:
    async def test_a_scale_set_comes_up_with_all_its_instances(
        self, world: World, spec: ScaleSetSpec
    ) -> None:
        await world.cloud.create(spec)
        seen = await world.seen(spec.name, READY)

        assert [i.name for i in seen.instances] == [f"{spec.name}_{n}" for n in (0, 1, 2)]
        assert [i.instance_id for i in seen.instances] == ["0", "1", "2"]
        assert len({i.vm_id for i in seen.instances} - {""}) == 3
        assert all(i.running for i in seen.instances)
        assert seen.tags[ATTEMPT_TAG] == "att-1"
        assert OWNER_TAG in seen.tags

    async def test_nothing_runs_while_it_is_being_created(
        self, world: World, spec: ScaleSetSpec
    ) -> None:
        await world.cloud.create(spec)
        seen = await world.seen(spec.name)

        assert seen.phase is CREATING
        assert not any(i.running for i in seen.instances)

    async def test_creating_it_twice_makes_one(self, world: World, spec: ScaleSetSpec) -> None:
        await world.cloud.create(spec)
        await world.cloud.create(spec)
        seen = await world.seen(spec.name, READY)
        await world.cloud.create(spec)

        assert await world.cloud.get(spec.name) == seen
        assert [s.name for s in await world.cloud.list_owned()] == [spec.name]

    async def test_creating_it_again_brings_no_evicted_instance_back(
        self, world: World, spec: ScaleSetSpec
    ) -> None:
        await world.cloud.create(spec)
        await world.seen(spec.name, READY)
        await world.evict(spec.name, "1")
        await world.cloud.create(spec)

        seen = await world.seen(spec.name, READY)
        assert [i.instance_id for i in seen.instances] == ["0", "2"]

    async def test_it_may_be_refused_at_once(self, world: World) -> None:
        spec = _spec(offering=NOT_SOLD)
        with pytest.raises(InsufficientCapacity) as refusal:
            await world.cloud.create(spec)

        assert refusal.value.code == "SkuNotAvailable"
        with pytest.raises(ScaleSetNotFound):
            await world.cloud.get(spec.name)

    async def test_it_may_be_refused_after_it_was_accepted(self, world: World) -> None:
        spec = _spec(offering=SCARCE)
        await world.cloud.create(spec)
        seen = await world.seen(spec.name, FAILED)

        assert (seen.error_code, seen.instances) == ("AllocationFailed", ())
        assert seen.error_message

    async def test_one_that_failed_is_there_until_it_is_deleted(self, world: World) -> None:
        spec = _spec(offering=SCARCE)
        await world.cloud.create(spec)
        await world.seen(spec.name, FAILED)
        assert [s.phase for s in await world.cloud.list_owned()] == [FAILED]

        await world.cloud.delete(spec.name)
        await world.gone(spec.name)
        assert await world.cloud.list_owned() == []


class TestEvictions:
    async def test_an_evicted_instance_is_gone_and_the_others_stay(
        self, world: World, spec: ScaleSetSpec
    ) -> None:
        await world.cloud.create(spec)
        before = await world.seen(spec.name, READY)
        await world.evict(spec.name, "1")
        after = await world.cloud.get(spec.name)

        assert after.phase is READY
        assert after.instances == (before.instances[0], before.instances[2])

    async def test_a_scale_set_outlives_its_last_instance(
        self, world: World, spec: ScaleSetSpec
    ) -> None:
        await world.cloud.create(replace(spec, instance_count=1))
        await world.seen(spec.name, READY)
        await world.evict(spec.name, "0")

        assert (await world.cloud.get(spec.name)).instances == ()


class TestDeleting:
    async def test_an_unknown_scale_set_is_not_found(self, world: World) -> None:
        with pytest.raises(ScaleSetNotFound):
            await world.cloud.get("rk-unknown")
        with pytest.raises(ScaleSetNotFound):
            await world.cloud.delete("rk-unknown")

    async def test_deletion_takes_time_and_ends_in_not_found(
        self, world: World, spec: ScaleSetSpec
    ) -> None:
        await world.cloud.create(spec)
        await world.seen(spec.name, READY)
        await world.cloud.delete(spec.name)
        assert (await world.cloud.get(spec.name)).phase is DELETING

        await world.gone(spec.name)
        with pytest.raises(ScaleSetNotFound):
            await world.cloud.delete(spec.name)
        assert await world.cloud.list_owned() == []

    async def test_deleting_twice_does_no_harm(self, world: World, spec: ScaleSetSpec) -> None:
        await world.cloud.create(spec)
        await world.seen(spec.name)
        await world.cloud.delete(spec.name)
        await world.cloud.delete(spec.name)

        await world.gone(spec.name)

    async def test_one_that_is_still_being_created_can_be_deleted(
        self, world: World, spec: ScaleSetSpec
    ) -> None:
        await world.cloud.create(spec)
        assert (await world.seen(spec.name)).phase is CREATING
        await world.cloud.delete(spec.name)
        assert (await world.cloud.get(spec.name)).phase is DELETING

        await world.gone(spec.name)


class TestOwnership:
    async def test_every_page_is_listed_without_instances(self, world: World) -> None:
        specs = [replace(_spec(), instance_count=1) for _ in range(5)]
        for spec in specs:
            await world.cloud.create(spec)
        for spec in specs:
            await world.seen(spec.name)
        owned = await world.cloud.list_owned()

        assert {s.name for s in owned} == {s.name for s in specs}
        assert all(s.instances == () for s in owned)
        assert all(s.tags[ATTEMPT_TAG] == "att-1" for s in owned)

    async def test_a_neighbours_scale_set_is_neither_listed_nor_taken_for_gone(
        self, world: World, spec: ScaleSetSpec
    ) -> None:
        await world.cloud.create(spec)
        await world.seen(spec.name)

        assert spec.name not in {s.name for s in await world.neighbour.list_owned()}
        with pytest.raises(Misconfigured):
            await world.neighbour.get(spec.name)


def _spec(offering: Offering = SPOT) -> ScaleSetSpec:
    return ScaleSetSpec(
        name=f"rk-{uuid4().hex[:26]}",
        offering=offering,
        instance_count=3,
        cloud_init=render("{}", IMAGE, "cpu"),
        tags={ATTEMPT_TAG: "att-1"},
    )


async def _look(cloud: CloudProvider, name: str) -> ScaleSet | None:
    try:
        return await cloud.get(name)
    except ScaleSetNotFound:
        return None
