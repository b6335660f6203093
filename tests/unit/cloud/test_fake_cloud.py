"""The fake cloud, and scale sets and clusters as one cloud."""

from dataclasses import replace
from datetime import timedelta

import pytest

from contract.choices import Engine
from service.cloud.engines import Engines, cloud_of_pool, unlisted_reason
from service.cloud.fake import FakeCloud
from service.cloud.provider import CloudError, ScaleSetNotFound
from service.domain.cloud.fleet import Offering, ScaleSetPhase, ScaleSetSpec
from service.domain.states import CapacityType
from tests.clock import Clock

OFFERING = Offering(region="eastus", vm_size="ND", capacity_type=CapacityType.SPOT)
SPEC = ScaleSetSpec(name="rk-1", offering=OFFERING, instance_count=3, cloud_init="#cloud-config\n")


@pytest.fixture
def cloud(clock: Clock) -> FakeCloud:
    return FakeCloud(now=clock)


async def test_a_fresh_scale_set_costs_before_it_can_be_seen(
    cloud: FakeCloud, clock: Clock
) -> None:
    await cloud.create(SPEC)
    with pytest.raises(ScaleSetNotFound):
        await cloud.get("rk-1")
    assert await cloud.list_owned() == []
    assert cloud.billed_names() == {"rk-1"}

    clock.at += cloud.visible_after
    assert (await cloud.get("rk-1")).phase is ScaleSetPhase.CREATING


async def test_the_same_instance_has_the_same_vm_id_in_every_run(clock: Clock) -> None:
    ids = []
    for _ in range(2):
        cloud = FakeCloud(now=clock, create_time=timedelta(0), visible_after=timedelta(0))
        await cloud.create(SPEC)
        ids.append([i.vm_id for i in (await cloud.get("rk-1")).instances])

    assert ids[0] == ids[1]


SET = Offering(region="eastus", vm_size="Standard_ND96asr_v4", capacity_type=CapacityType.SPOT)
CLUSTER = replace(SET, engine=Engine.AZUREML)


@pytest.fixture
def two_engines(clock: Clock) -> Engines:
    return Engines(scale_sets=FakeCloud(now=clock), azureml=FakeCloud(now=clock))


async def create_both(cloud: Engines, clock: Clock) -> None:
    for name, offering in (("rk-set", SET), ("rk-cluster", CLUSTER)):
        await cloud.create(
            ScaleSetSpec(name=name, offering=offering, instance_count=1, cloud_init="")
        )
    clock.advance(seconds=600)


async def test_each_is_made_and_found_by_its_own_engine(two_engines: Engines, clock: Clock) -> None:
    await create_both(two_engines, clock)

    assert [s.name for s in await cloud_of_pool(two_engines, SET.pool).list_owned()] == ["rk-set"]
    assert [s.name for s in await two_engines.cloud_of_pool(CLUSTER.pool).list_owned()] == [
        "rk-cluster"
    ]
    assert (await two_engines.get("rk-cluster")).engine is Engine.AZUREML
    await two_engines.delete("rk-cluster")
    clock.advance(seconds=600)
    with pytest.raises(ScaleSetNotFound):
        await two_engines.get("rk-cluster")


async def test_a_workspace_that_does_not_answer_hides_no_scale_set(
    two_engines: Engines, clock: Clock
) -> None:
    await create_both(two_engines, clock)
    assert isinstance(two_engines.azureml, FakeCloud)
    two_engines.azureml.fail_next.append(CloudError("the workspace is gone"))

    listed = await two_engines.list_owned()

    assert [s.name for s in listed] == ["rk-set"]
    assert unlisted_reason(listed) == "the workspace is gone"
    assert unlisted_reason(await two_engines.list_owned()) == ""


async def test_scale_sets_that_cannot_be_listed_are_not_taken_for_none(
    two_engines: Engines, clock: Clock
) -> None:
    await create_both(two_engines, clock)
    assert isinstance(two_engines.scale_sets, FakeCloud)
    two_engines.scale_sets.fail_next.append(CloudError("throttled"))

    with pytest.raises(CloudError):
        await two_engines.list_owned()


async def test_a_scale_set_is_seen_to_be_gone_though_the_workspace_does_not_answer(
    two_engines: Engines,
) -> None:
    assert isinstance(two_engines.azureml, FakeCloud)
    two_engines.azureml.fail_next.append(CloudError("the workspace is gone"))

    with pytest.raises(ScaleSetNotFound):
        await cloud_of_pool(two_engines, SET.pool).get("rk-set")
