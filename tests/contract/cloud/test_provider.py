"""Contract of CloudProvider: the fake, and the Azure adapter with the emulator."""

from dataclasses import replace

import pytest

from service.cloud.provider import (
    ATTEMPT_TAG,
    OWNER_TAG,
    SERIAL_LOG_BYTES,
    InsufficientCapacity,
    Misconfigured,
    NoSerialLog,
    ScaleSetNotFound,
)
from service.domain.cloud.fleet import ScaleSet, ScaleSetPhase, ScaleSetSpec
from service.domain.states import CapacityType
from tests.contract.cloud.clouds import NOT_SOLD, QUIET, SCARCE, SPOT, UNTRACKED_KIND, World, a_spec

CREATING, READY = ScaleSetPhase.CREATING, ScaleSetPhase.READY
FAILED, DELETING = ScaleSetPhase.FAILED, ScaleSetPhase.DELETING


@pytest.fixture
def spec() -> ScaleSetSpec:
    return a_spec()


async def until_full(world: World, name: str) -> ScaleSet:
    return await world.until(
        lambda: world.cloud.get(name),
        lambda scale_set: (
            scale_set.phase is READY and sum(i.running for i in scale_set.instances) == 3
        ),
    )


async def until_two_are_left(world: World, name: str) -> ScaleSet:
    return await world.until(
        lambda: world.cloud.get(name),
        lambda scale_set: scale_set.phase is READY and len(scale_set.instances) == 2,
    )


async def test_a_scale_set_that_is_created_again_and_again_comes_up_once_with_all_its_instances(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.cloud.create(spec)
    await world.cloud.create(spec)
    scale_set = await world.wait_until_seen(spec.name, READY)
    await world.cloud.create(spec)

    assert [i.name for i in scale_set.instances] == [f"{spec.name}_{n}" for n in (0, 1, 2)]
    assert [i.instance_id for i in scale_set.instances] == ["0", "1", "2"]
    assert len({i.vm_id for i in scale_set.instances} - {""}) == 3
    assert all(i.running for i in scale_set.instances)
    assert scale_set.tags[ATTEMPT_TAG] == "att-1"
    assert OWNER_TAG in scale_set.tags
    assert await world.cloud.get(spec.name) == scale_set
    assert [s.name for s in await world.cloud.list_owned()] == [spec.name]


async def test_the_list_of_all_shows_where_and_how_each_was_bought(world: World) -> None:
    on_demand = replace(SPOT, capacity_type=CapacityType.ON_DEMAND)
    for offering in (SPOT, on_demand):
        spec = a_spec(offering=offering)
        await world.cloud.create(spec)
        await world.wait_until_seen(spec.name)

    bought = [(s.region, s.vm_size, s.capacity_type) for s in await world.cloud.list_owned()]
    assert sorted(bought) == sorted(
        (o.region, o.vm_size, o.capacity_type) for o in (SPOT, on_demand)
    )


async def test_it_may_be_refused_at_once(world: World) -> None:
    spec = a_spec(offering=NOT_SOLD)
    with pytest.raises(InsufficientCapacity) as refusal:
        await world.cloud.create(spec)

    assert refusal.value.code == "SkuNotAvailable"
    with pytest.raises(ScaleSetNotFound):
        await world.cloud.get(spec.name)


async def test_one_that_failed_is_there_until_it_is_deleted(world: World) -> None:
    spec = a_spec(offering=SCARCE)
    await world.cloud.create(spec)
    scale_set = await world.wait_until_seen(spec.name, FAILED)
    assert (scale_set.error_code, scale_set.instances) == ("AllocationFailed", ())
    assert scale_set.error_message
    assert [s.phase for s in await world.cloud.list_owned()] == [FAILED]

    await world.cloud.delete(spec.name)
    await world.wait_until_gone(spec.name)
    assert await world.cloud.list_owned() == []


async def test_evicted_instances_are_gone_and_are_not_brought_back_by_creating_it_again(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.cloud.create(spec)
    before = await world.wait_until_seen(spec.name, READY)
    (scale_set,) = await world.cloud.list_owned()
    await world.evict(spec.name, "1")
    after = await world.cloud.get(spec.name)
    (listed_after,) = await world.cloud.list_owned()
    await world.cloud.create(spec)

    assert (scale_set.phase, scale_set.capacity) == (READY, 3)
    assert (listed_after.phase, listed_after.capacity) == (READY, 2)
    assert (after.phase, after.instances) == (READY, (before.instances[0], before.instances[2]))
    assert (await world.wait_until_seen(spec.name, READY)).instances == after.instances
    for instance in after.instances:
        await world.evict(spec.name, instance.instance_id)
    last = await world.cloud.get(spec.name)
    assert (last.phase, last.instances) == (READY, ())


async def test_what_was_evicted_is_replaced_once_by_a_machine_that_is_new(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.cloud.create(spec)
    before = await world.wait_until_seen(spec.name, READY)
    await world.evict(spec.name, "1")
    await world.cloud.refill(spec.name, 3)
    meanwhile = await world.cloud.get(spec.name)
    await world.cloud.refill(spec.name, 3)
    after = await until_full(world, spec.name)
    await world.cloud.refill(spec.name, 3)

    assert meanwhile.phase is CREATING
    assert sum(i.running for i in meanwhile.instances) == 2
    assert after.instances[:2] == (before.instances[0], before.instances[2])
    assert after.instances[2].instance_id == "3"
    assert after.instances[2].vm_id not in {i.vm_id for i in before.instances}
    assert (await world.cloud.get(spec.name)).instances == after.instances


async def test_a_machine_that_lingers_is_deleted_before_it_is_replaced(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.cloud.create(spec)
    await world.wait_until_seen(spec.name, READY)
    await world.evict(spec.name, "2", lingers=True)
    lingering = await world.until(
        lambda: world.cloud.get(spec.name),
        lambda scale_set: sum(i.running for i in scale_set.instances) == 2,
    )
    await world.cloud.refill(spec.name, 3)
    remaining = await until_two_are_left(world, spec.name)
    await world.cloud.refill(spec.name, 3)
    after = await until_full(world, spec.name)

    assert [i.running for i in lingering.instances] == [True, True, False]
    assert [i.instance_id for i in remaining.instances] == ["0", "1"]
    assert [i.instance_id for i in after.instances] == ["0", "1", "3"]


async def test_a_refusal_leaves_those_that_run_alone_and_may_be_followed_by_a_grant(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.cloud.create(spec)
    await world.wait_until_seen(spec.name, READY)
    await world.evict(spec.name, "1")
    await world.arm("allocation_failed", code="AllocationFailed", method="PUT", count=1)
    await world.cloud.refill(spec.name, 3)
    refused = await world.wait_until_seen(spec.name, FAILED)
    await world.clear()
    await world.cloud.refill(spec.name, 3)

    assert refused.error_code == "AllocationFailed"
    assert [i.instance_id for i in refused.instances if i.running] == ["0", "2"]
    assert len((await until_full(world, spec.name)).instances) == 3


async def test_a_running_machine_that_is_of_no_use_is_deleted_before_it_is_replaced(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.cloud.create(spec)
    before = await world.wait_until_seen(spec.name, READY)
    await world.cloud.refill(spec.name, 3, [before.instances[1].vm_id])
    remaining = await until_two_are_left(world, spec.name)
    await world.cloud.refill(spec.name, 3)
    after = await until_full(world, spec.name)

    assert remaining.instances == (before.instances[0], before.instances[2])
    assert [i.instance_id for i in after.instances] == ["0", "2", "3"]
    first, _, newest = [i.created_at for i in after.instances]
    assert first is not None
    assert newest is not None
    assert first < newest


async def test_what_is_unknown_is_not_found_and_has_no_serial_log(
    world: World, spec: ScaleSetSpec
) -> None:
    for call in (world.cloud.get, world.cloud.delete):
        with pytest.raises(ScaleSetNotFound):
            await call("rk-unknown")
    with pytest.raises(ScaleSetNotFound):
        await world.cloud.refill("rk-unknown", 3)
    await world.cloud.create(spec)
    await world.wait_until_seen(spec.name, READY)
    for name, instance in ((spec.name, "9"), ("rk-unknown", "0")):
        with pytest.raises(NoSerialLog):
            await world.cloud.serial_log(name, instance)


async def test_deletion_takes_time_may_be_repeated_and_ends_in_not_found(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.cloud.create(spec)
    await world.wait_until_seen(spec.name, READY)
    await world.arm("delete_hangs")
    for _ in range(2):
        await world.cloud.delete(spec.name)
        assert (await world.cloud.get(spec.name)).phase is DELETING

    await world.clear()
    await world.wait_until_gone(spec.name)
    with pytest.raises(ScaleSetNotFound):
        await world.cloud.delete(spec.name)
    assert await world.cloud.list_owned() == []


async def test_one_that_is_still_being_created_runs_nothing_and_can_be_deleted(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.arm("stragglers", instances=3)
    await world.arm("delete_hangs")
    await world.cloud.create(spec)
    scale_set = await world.wait_until_seen(spec.name)
    assert (scale_set.phase, any(i.running for i in scale_set.instances)) == (CREATING, False)
    await world.cloud.delete(spec.name)
    assert (await world.cloud.get(spec.name)).phase is DELETING

    await world.clear()
    await world.wait_until_gone(spec.name)


async def test_every_page_is_listed_without_instances(world: World) -> None:
    specs = [replace(a_spec(), instance_count=1) for _ in range(5)]
    for spec in specs:
        await world.cloud.create(spec)
    for spec in specs:
        await world.wait_until_seen(spec.name)
    owned = await world.cloud.list_owned()

    assert {s.name for s in owned} == {s.name for s in specs}
    assert all(s.instances == () for s in owned)
    assert all(s.tags[ATTEMPT_TAG] == "att-1" for s in owned)


async def test_a_neighbours_scale_set_is_neither_listed_nor_taken_for_gone(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.cloud.create(spec)
    await world.wait_until_seen(spec.name)

    assert spec.name not in {s.name for s in await world.neighbour.list_owned()}
    with pytest.raises(Misconfigured):
        await world.neighbour.get(spec.name)


async def test_what_carries_our_tag_and_is_no_scale_set_is_listed_page_by_page(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.cloud.create(spec)
    await world.wait_until_seen(spec.name)
    names = {f"left-{spec.name}-{n}" for n in range(3)}
    for name in sorted(names):
        await world.leave(name, owned=True)
    await world.leave(f"theirs-{spec.name}", owned=False)
    resources = await world.cloud.list_tagged()

    assert {r.name for r in resources} == names
    assert {(r.kind, r.region) for r in resources} == {(UNTRACKED_KIND, "eastus")}
    assert all(OWNER_TAG in r.tags for r in resources)


async def test_cores_of_spot_machines_are_used_until_they_are_deleted(world: World) -> None:
    spec = a_spec(QUIET)
    before = await world.cloud.spot_cores(QUIET.region)
    await world.cloud.create(spec)
    await world.wait_until_seen(spec.name, READY)
    between = await world.cloud.spot_cores(QUIET.region)
    await world.cloud.delete(spec.name)
    await world.wait_until_gone(spec.name)
    after = await world.cloud.spot_cores(QUIET.region)

    assert before.limit is not None
    assert (before.used, between.used, after.used) == (0, 3 * 24, 0)


async def test_what_a_machine_printed_can_be_fetched_and_only_the_end_of_much(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.cloud.create(spec)
    await world.wait_until_seen(spec.name, READY)
    world.print_to_console(spec.name, "1", b"x" * SERIAL_LOG_BYTES + b"docker: denied\n")
    text = await world.cloud.serial_log(spec.name, "1")

    assert len(text) == SERIAL_LOG_BYTES
    assert b"docker: denied\n" in text
