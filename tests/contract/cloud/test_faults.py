"""Faults of Azure: the fake and the adapter give the same errors and the same facts."""

import pytest

from service.cloud.provider import (
    CloudError,
    InsufficientCapacity,
    Misconfigured,
    ScaleSetNotFound,
    Throttled,
)
from service.domain.cloud.fleet import ScaleSetFailure, ScaleSetPhase, ScaleSetSpec
from tests.contract.cloud.clouds import World, a_spec

CREATING = ScaleSetPhase.CREATING
READY = ScaleSetPhase.READY
FAILED = ScaleSetPhase.FAILED
DELETING = ScaleSetPhase.DELETING
NOT_A_VERDICT = (InsufficientCapacity, ScaleSetNotFound, Misconfigured)


@pytest.fixture
def spec() -> ScaleSetSpec:
    return a_spec()


async def _up(world: World, spec: ScaleSetSpec) -> None:
    await world.cloud.create(spec)
    await world.wait_until_seen(spec.name, READY)


async def test_a_throttled_call_says_how_long_to_wait(world: World, spec: ScaleSetSpec) -> None:
    await world.arm("throttle", retry_after=1200, count=1)
    with pytest.raises(Throttled) as refusal:
        await world.cloud.create(spec)

    assert (refusal.value.retry_after, refusal.value.code) == (1200, "OperationNotAllowed")
    await world.cloud.create(spec)
    await world.wait_until_seen(spec.name, READY)


@pytest.mark.parametrize("status", [500, 502, 503])
async def test_a_failing_cloud_says_nothing_of_the_scale_set(
    world: World, spec: ScaleSetSpec, status: int
) -> None:
    await _up(world, spec)
    await world.arm("error", status=status, count=1)
    with pytest.raises(CloudError) as failure:
        await world.cloud.get(spec.name)

    assert not isinstance(failure.value, NOT_A_VERDICT)
    assert (await world.cloud.get(spec.name)).phase is READY


async def test_a_connection_that_breaks_before_a_create_leaves_nothing(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.arm("drop", when="before", method="PUT", count=2)  # the client tries twice
    with pytest.raises(CloudError) as failure:
        await world.cloud.create(spec)

    assert not isinstance(failure.value, NOT_A_VERDICT)
    await world.clear()
    assert await world.cloud.list_owned() == []
    await _up(world, spec)


async def test_a_create_whose_answer_was_lost_may_be_repeated(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.arm("drop", when="after", method="PUT", count=2)
    with pytest.raises(CloudError):
        await world.cloud.create(spec)
    await world.clear()
    await world.cloud.create(spec)
    scale_set = await world.wait_until_seen(spec.name, READY)

    assert [i.instance_id for i in scale_set.instances] == ["0", "1", "2"]
    assert [s.name for s in await world.cloud.list_owned()] == [spec.name]


async def test_a_scale_set_that_came_up_in_part_shows_what_it_costs(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.arm("partial", instances=2, count=1)
    await world.cloud.create(spec)
    scale_set = await world.wait_until_seen(spec.name, FAILED)

    assert [i.instance_id for i in scale_set.instances] == ["0", "1"]
    assert scale_set.error_code == "AllocationFailed"
    await world.cloud.delete(spec.name)
    await world.wait_until_gone(spec.name)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("AllocationFailed", ScaleSetFailure.NO_CAPACITY),
        ("NetworkingInternalOperationError", ScaleSetFailure.TRANSIENT),
        ("OperationPreempted", ScaleSetFailure.TRANSIENT),
        ("PlatformImageNotFound", ScaleSetFailure.MISCONFIGURED),
        ("RequestDisallowedByPolicy", ScaleSetFailure.MISCONFIGURED),
    ],
)
async def test_an_operation_that_fails_after_acceptance_says_what_that_means(
    world: World, spec: ScaleSetSpec, code: str, kind: ScaleSetFailure
) -> None:
    await world.arm("allocation_failed", code=code, delay=0.2, count=1)
    await world.cloud.create(spec)
    scale_set = await world.wait_until_seen(spec.name, FAILED)

    assert (scale_set.error_code, scale_set.failure, scale_set.instances) == (code, kind, ())


async def test_those_that_failed_may_stay_in_the_list_and_are_replaced(
    world: World, spec: ScaleSetSpec
) -> None:
    code = "NetworkingInternalOperationError"
    await world.arm("failed_instances", instances=2, code=code, count=1)
    await world.cloud.create(spec)
    failed = await world.wait_until_seen(spec.name, FAILED)
    await world.clear()

    async def filled() -> int:
        scale_set = await world.cloud.get(spec.name)
        if sum(i.running for i in scale_set.instances) < 3:
            await world.cloud.refill(spec.name, 3)
        return len([i for i in scale_set.instances if i.running])

    assert [i.running for i in failed.instances] == [True, True, False]
    assert (failed.error_code, failed.failure) == (code, ScaleSetFailure.TRANSIENT)
    await world.until(filled, lambda running: running == 3)
    after = await world.cloud.get(spec.name)
    assert {i.instance_id for i in after.instances} == {"0", "1", "3"}


async def test_machines_that_have_come_run_while_the_others_are_still_being_made(
    world: World, spec: ScaleSetSpec
) -> None:
    await world.arm("stragglers", instances=1, count=1)
    await world.cloud.create(spec)
    await world.wait_until_seen(spec.name)
    early = await world.until(
        lambda: world.cloud.get(spec.name),
        lambda scale_set: any(i.running for i in scale_set.instances),
    )
    await world.cloud.refill(spec.name, 3)  # it is under way: this adds none
    await world.clear()
    late = await world.wait_until_seen(spec.name, READY)

    assert early.phase is CREATING
    assert [i.instance_id for i in early.instances if i.running] == ["0", "1"]
    assert [i.instance_id for i in late.instances if i.running] == ["0", "1", "2"]


async def test_a_delete_that_fails_leaves_everything_and_may_be_repeated(
    world: World, spec: ScaleSetSpec
) -> None:
    await _up(world, spec)
    await world.arm("delete_fails", count=1, delay=2)
    await world.cloud.delete(spec.name)
    assert (await world.cloud.get(spec.name)).phase is DELETING
    failed = await world.wait_until_seen(spec.name, FAILED)
    await world.cloud.delete(spec.name)

    assert (failed.error_code, len(failed.instances)) == ("InternalExecutionError", 3)
    await world.wait_until_gone(spec.name)


async def test_a_restored_instance_has_an_id_that_was_never_used(
    world: World, spec: ScaleSetSpec
) -> None:
    await _up(world, spec)
    await world.evict(spec.name, "2")
    await world.restore(spec.name)

    async def ids() -> list[str]:
        return [i.instance_id for i in (await world.cloud.get(spec.name)).instances]

    await world.until(ids, lambda instance_ids: instance_ids == ["0", "1", "3"])


async def test_the_cloud_says_when_it_took_the_order(world: World, spec: ScaleSetSpec) -> None:
    await world.cloud.create(spec)
    first = await world.wait_until_seen(spec.name)
    later = await world.wait_until_seen(spec.name, READY)

    assert first.created_at is not None
    assert later.created_at == first.created_at
    assert [s.created_at for s in await world.cloud.list_owned()] == [first.created_at]


@pytest.mark.parametrize(
    ("fault", "refusal", "code", "message"),
    [
        ({"kind": "sku_not_available", "region": "eastus"}, InsufficientCapacity,
         "SkuNotAvailable", ""),
        ({"kind": "quota"}, InsufficientCapacity, "OperationNotAllowed", "LowPriorityCores"),
        ({"kind": "policy", "policy": "Allowed VM sizes"}, Misconfigured,
         "RequestDisallowedByPolicy", "Allowed VM sizes"),
    ],
)  # fmt: skip
async def test_a_size_may_be_sold_out_for_a_moment(
    world: World,
    spec: ScaleSetSpec,
    fault: dict[str, str],
    refusal: type[InsufficientCapacity | Misconfigured],
    code: str,
    message: str,
) -> None:
    """Or a quota is used up, or a policy denies it: each is named, and the next call succeeds."""
    await world.arm(**fault, count=1)
    with pytest.raises(refusal) as refused:
        await world.cloud.create(spec)

    assert refused.value.code == code
    assert message in str(refused.value)
    await _up(world, spec)


async def test_a_delete_that_hangs_is_seen_to_be_under_way(
    world: World, spec: ScaleSetSpec
) -> None:
    await _up(world, spec)
    await world.arm("delete_hangs")
    await world.cloud.delete(spec.name)
    await world.cloud.delete(spec.name)

    assert (await world.cloud.get(spec.name)).phase is DELETING
    await world.clear()
    await world.wait_until_gone(spec.name)
