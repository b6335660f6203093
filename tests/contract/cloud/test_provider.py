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

CREATING, READY, FAILED, DELETING = (
    ScaleSetPhase.CREATING,
    ScaleSetPhase.READY,
    ScaleSetPhase.FAILED,
    ScaleSetPhase.DELETING,
)


@pytest.fixture
def spec() -> ScaleSetSpec:
    return a_spec()


async def test_a_scale_set_comes_up_with_all_its_instances(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.cloud.create(spec)
    seen = await world.seen(spec.name, READY)

    assert [i.name for i in seen.instances] == [f"{spec.name}_{n}" for n in (0, 1, 2)]
    assert [i.instance_id for i in seen.instances] == ["0", "1", "2"]
    assert len({i.vm_id for i in seen.instances} - {""}) == 3
    assert all(i.running for i in seen.instances)
    assert seen.tags[ATTEMPT_TAG] == "att-1"
    assert OWNER_TAG in seen.tags


async def test_creating_it_twice_makes_one(world: World, spec: ScaleSetSpec) -> None:
    await world.cloud.create(spec)
    await world.cloud.create(spec)
    seen = await world.seen(spec.name, READY)
    await world.cloud.create(spec)

    assert await world.cloud.get(spec.name) == seen
    assert [s.name for s in await world.cloud.list_owned()] == [spec.name]


async def test_creating_it_again_brings_no_evicted_instance_back(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.cloud.create(spec)
    await world.seen(spec.name, READY)
    await world.evict(spec.name, "1")
    await world.cloud.create(spec)

    seen = await world.seen(spec.name, READY)
    assert [i.instance_id for i in seen.instances] == ["0", "2"]


async def test_the_list_of_all_shows_where_and_how_each_was_bought(world: World) -> None:
    dear = replace(SPOT, capacity_type=CapacityType.ON_DEMAND)
    for offering in (SPOT, dear):
        made = a_spec(offering=offering)
        await world.cloud.create(made)
        await world.seen(made.name)
    found = await world.cloud.list_owned()

    bought = [(s.region, s.vm_size, s.capacity_type) for s in found]
    assert sorted(bought) == sorted((o.region, o.vm_size, o.capacity_type) for o in (SPOT, dear))


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
    await world.seen(spec.name, FAILED)
    assert [s.phase for s in await world.cloud.list_owned()] == [FAILED]

    await world.cloud.delete(spec.name)
    await world.gone(spec.name)
    assert await world.cloud.list_owned() == []


async def test_an_evicted_instance_is_gone_and_the_others_stay(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.cloud.create(spec)
    before = await world.seen(spec.name, READY)
    await world.evict(spec.name, "1")
    after = await world.cloud.get(spec.name)

    assert after.phase is READY
    assert after.instances == (before.instances[0], before.instances[2])


async def test_the_list_of_all_shows_that_an_instance_is_gone(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.cloud.create(spec)
    await world.seen(spec.name, READY)
    (before,) = await world.cloud.list_owned()
    await world.evict(spec.name, "1")
    await world.cloud.get(spec.name)
    (after,) = await world.cloud.list_owned()

    assert (before.phase, before.capacity) == (READY, 3)
    assert (after.phase, after.capacity) == (READY, 2)


async def test_a_scale_set_outlives_its_last_instance(world: World, spec: ScaleSetSpec) -> None:
    await world.cloud.create(replace(spec, instance_count=1))
    await world.seen(spec.name, READY)
    await world.evict(spec.name, "0")

    assert (await world.cloud.get(spec.name)).instances == ()


async def test_what_was_evicted_is_replaced_by_a_machine_that_is_new(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.cloud.create(spec)
    before = await world.seen(spec.name, READY)
    await world.evict(spec.name, "1")
    await world.cloud.refill(spec.name, 3)
    meanwhile = await world.cloud.get(spec.name)
    after = await _full(world, spec.name)

    assert meanwhile.phase is CREATING
    assert sum(i.running for i in meanwhile.instances) == 2
    assert after.instances[:2] == (before.instances[0], before.instances[2])
    assert after.instances[2].instance_id == "3"
    assert after.instances[2].vm_id not in {i.vm_id for i in before.instances}


async def test_asking_again_makes_no_more_machines_than_are_wanted(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.cloud.create(spec)
    await world.seen(spec.name, READY)
    await world.evict(spec.name, "0")
    await world.cloud.refill(spec.name, 3)
    await world.cloud.refill(spec.name, 3)
    after = await _full(world, spec.name)
    await world.cloud.refill(spec.name, 3)

    assert (await world.cloud.get(spec.name)).instances == after.instances


async def test_a_machine_that_lingers_is_deleted_before_it_is_replaced(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.cloud.create(spec)
    await world.seen(spec.name, READY)
    await world.evict(spec.name, "2", lingers=True)
    await world.until(
        lambda: world.cloud.get(spec.name), lambda seen: sum(i.running for i in seen.instances) == 2
    )
    await world.cloud.refill(spec.name, 3)
    left = await world.until(
        lambda: world.cloud.get(spec.name),
        lambda seen: seen.phase is READY and len(seen.instances) == 2,
    )
    await world.cloud.refill(spec.name, 3)
    after = await _full(world, spec.name)

    assert [i.instance_id for i in left.instances] == ["0", "1"]
    assert [i.instance_id for i in after.instances] == ["0", "1", "3"]


async def test_a_refusal_leaves_those_that_run_alone_and_may_be_followed_by_a_grant(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.cloud.create(spec)
    await world.seen(spec.name, READY)
    await world.evict(spec.name, "1")
    await world.arm("allocation_failed", code="AllocationFailed", method="PUT", count=1)
    await world.cloud.refill(spec.name, 3)
    refused = await world.seen(spec.name, FAILED)
    await world.clear()
    await world.cloud.refill(spec.name, 3)

    assert refused.error_code == "AllocationFailed"
    assert [i.instance_id for i in refused.instances if i.running] == ["0", "2"]
    assert len((await _full(world, spec.name)).instances) == 3


async def test_a_running_machine_that_is_of_no_use_is_deleted_before_it_is_replaced(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.cloud.create(spec)
    before = await world.seen(spec.name, READY)
    await world.cloud.refill(spec.name, 3, [before.instances[1].vm_id])
    left = await world.until(
        lambda: world.cloud.get(spec.name),
        lambda seen: seen.phase is READY and len(seen.instances) == 2,
    )
    await world.cloud.refill(spec.name, 3)
    after = await _full(world, spec.name)

    assert left.instances == (before.instances[0], before.instances[2])
    assert [i.instance_id for i in after.instances] == ["0", "2", "3"]
    first, _, newest = [i.created_at for i in after.instances]
    assert first is not None
    assert newest is not None
    assert first < newest


async def test_a_scale_set_that_is_gone_cannot_be_refilled(world: World) -> None:
    with pytest.raises(ScaleSetNotFound):
        await world.cloud.refill("rk-unknown", 3)


async def _full(world: World, name: str) -> ScaleSet:
    return await world.until(
        lambda: world.cloud.get(name),
        lambda seen: seen.phase is READY and sum(i.running for i in seen.instances) == 3,
    )


async def test_an_unknown_scale_set_is_not_found(world: World) -> None:
    with pytest.raises(ScaleSetNotFound):
        await world.cloud.get("rk-unknown")
    with pytest.raises(ScaleSetNotFound):
        await world.cloud.delete("rk-unknown")


async def test_deletion_takes_time_and_ends_in_not_found(world: World, spec: ScaleSetSpec) -> None:
    await world.cloud.create(spec)
    await world.seen(spec.name, READY)
    await world.cloud.delete(spec.name)
    assert (await world.cloud.get(spec.name)).phase is DELETING

    await world.gone(spec.name)
    with pytest.raises(ScaleSetNotFound):
        await world.cloud.delete(spec.name)
    assert await world.cloud.list_owned() == []


async def test_deleting_twice_does_no_harm(world: World, spec: ScaleSetSpec) -> None:
    await world.cloud.create(spec)
    await world.seen(spec.name)
    await world.cloud.delete(spec.name)
    await world.cloud.delete(spec.name)

    await world.gone(spec.name)
    assert await world.cloud.list_owned() == []


async def test_one_that_is_still_being_created_can_be_deleted(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.cloud.create(spec)
    assert (await world.seen(spec.name)).phase is CREATING
    await world.cloud.delete(spec.name)
    assert (await world.cloud.get(spec.name)).phase is DELETING

    await world.gone(spec.name)


async def test_every_page_is_listed_without_instances(world: World) -> None:
    specs = [replace(a_spec(), instance_count=1) for _ in range(5)]
    for spec in specs:
        await world.cloud.create(spec)
    for spec in specs:
        await world.seen(spec.name)
    owned = await world.cloud.list_owned()

    assert {s.name for s in owned} == {s.name for s in specs}
    assert all(s.instances == () for s in owned)
    assert all(s.tags[ATTEMPT_TAG] == "att-1" for s in owned)


async def test_a_neighbours_scale_set_is_neither_listed_nor_taken_for_gone(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.cloud.create(spec)
    await world.seen(spec.name)

    assert spec.name not in {s.name for s in await world.neighbour.list_owned()}
    with pytest.raises(Misconfigured):
        await world.neighbour.get(spec.name)


async def test_what_carries_our_tag_and_is_no_scale_set_is_listed_page_by_page(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.cloud.create(spec)
    await world.seen(spec.name)
    names = {f"left-{spec.name}-{n}" for n in range(3)}
    for name in sorted(names):
        await world.leave(name, mine=True)
    await world.leave(f"theirs-{spec.name}", mine=False)
    found = await world.cloud.list_tagged()

    assert {r.name for r in found} == names
    assert {(r.kind, r.region) for r in found} == {(UNTRACKED_KIND, "eastus")}
    assert all(OWNER_TAG in r.tags for r in found)


async def test_cores_of_spot_machines_are_used_until_they_are_deleted(world: World) -> None:
    spec = a_spec(QUIET)
    before = await world.cloud.spot_cores(QUIET.region)
    await world.cloud.create(spec)
    await world.seen(spec.name, READY)
    between = await world.cloud.spot_cores(QUIET.region)
    await world.cloud.delete(spec.name)
    await world.gone(spec.name)
    after = await world.cloud.spot_cores(QUIET.region)

    assert before.limit is not None
    assert (before.used, between.used, after.used) == (0, 3 * 24, 0)


async def test_what_a_machine_printed_can_be_fetched_and_only_the_end_of_much(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.cloud.create(spec)
    await world.seen(spec.name, READY)
    world.print_to_console(spec.name, "1", b"x" * SERIAL_LOG_BYTES + b"docker: denied\n")
    text = await world.cloud.serial_log(spec.name, "1")

    assert len(text) == SERIAL_LOG_BYTES
    assert b"docker: denied\n" in text


async def test_what_does_not_exist_has_no_serial_log(world: World, spec: ScaleSetSpec) -> None:
    await world.cloud.create(spec)
    await world.seen(spec.name, READY)

    for name, instance in ((spec.name, "9"), ("rk-unknown", "0")):
        with pytest.raises(NoSerialLog):
            await world.cloud.serial_log(name, instance)
