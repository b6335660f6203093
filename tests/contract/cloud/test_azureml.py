"""Contract of clusters in Azure ML: the fake, and the real client with the emulator."""

import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest

from contract.choices import Engine
from service import azure_access
from service.cloud.provider import ATTEMPT_TAG, Misconfigured, NoSerialLog, ScaleSetNotFound
from service.domain.cloud.fleet import ScaleSetFailure, ScaleSetPhase
from tests.clock import Clock
from tests.contract.cloud import workspaces
from tests.contract.cloud.test_azure_access import settings
from tests.contract.cloud.workspaces import FULL, SPOT, Space, a_spec, emulated_space, fake_space
from tests.emulated.process import GROUP, Emulator

pytestmark = pytest.mark.filterwarnings("ignore")  # azure-ai-ml and what it imports


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    with workspaces.server(tmp_path_factory.mktemp("workspace")) as running:
        yield running


@pytest.fixture(params=["fake", "emulator", "named"])
async def space(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[Space]:
    """Yield each kind of workspace; ``named`` uses an existing cluster."""
    form = request.param
    async for made in (
        fake_space(clock)
        if form == "fake"
        else emulated_space(request.getfixturevalue("azure"), named=form == "named")
    ):
        yield made


async def test_a_cluster_comes_up_with_all_its_nodes(space: Space) -> None:
    spec = a_spec()
    seen = await space.made(spec)

    assert seen.name == spec.name
    assert len({i.vm_id for i in seen.instances if i.running}) == 2
    assert (seen.engine, seen.region, seen.vm_size) == (Engine.AZUREML, "eastus", SPOT.vm_size)
    assert seen.capacity_type is SPOT.capacity_type
    assert seen.tags[ATTEMPT_TAG] == spec.tags[ATTEMPT_TAG]


async def test_ordering_it_again_changes_nothing(space: Space) -> None:
    spec = a_spec()
    before = await space.made(spec)
    await space.cloud.create(spec)

    assert await space.cloud.get(spec.name) == before
    assert [s.name for s in await space.cloud.list_owned()] == [spec.name]


async def test_a_list_counts_the_nodes_that_cost_money(space: Space) -> None:
    await space.made(a_spec())

    assert [s.capacity for s in await space.cloud.list_owned()] == [2]


async def test_an_evicted_node_leaves_fewer_that_run_than_were_ordered(space: Space) -> None:
    spec = a_spec()
    before = await space.made(spec)
    await space.preempt(spec.name, before.instances[0].vm_id)

    seen = await space.seen(
        spec.name, lambda s: s is not None and sum(i.running for i in s.instances) < 2
    )
    assert seen is not None
    assert before.instances[0].vm_id not in [i.vm_id for i in seen.instances if i.running]


async def test_a_refill_is_left_to_azure(space: Space) -> None:
    spec = a_spec()
    before = await space.made(spec)
    await space.cloud.refill(spec.name, 2, useless=[before.instances[0].vm_id])

    assert await space.cloud.get(spec.name) == before


async def test_one_for_which_there_is_no_room_says_so(space: Space) -> None:
    spec = a_spec(FULL)
    await space.cloud.create(spec)

    async def look() -> object:
        found = await space.look(spec.name)
        if found is None or found.phase is ScaleSetPhase.INCOMPLETE:
            await space.cloud.create(spec)
        return found

    seen = await space.until(look, lambda s: s is not None and s.phase is ScaleSetPhase.FAILED)
    assert seen.failure is ScaleSetFailure.NO_CAPACITY
    assert not any(i.running for i in seen.instances)


async def test_a_deleted_one_is_seen_to_be_gone(space: Space) -> None:
    spec = a_spec()
    await space.made(spec)
    await space.cloud.delete(spec.name)
    await space.seen(spec.name, lambda s: s is None or s.phase is ScaleSetPhase.DELETING)
    await space.seen(spec.name, lambda s: s is None)

    assert await space.cloud.list_owned() == []
    with pytest.raises(ScaleSetNotFound):
        await space.cloud.delete(spec.name)


async def test_a_scale_set_of_another_owner_is_not_reported_as_gone(space: Space) -> None:
    spec = a_spec()
    await space.made(spec)

    with pytest.raises(Misconfigured):
        await space.neighbour.get(spec.name)
    assert spec.name not in [s.name for s in await space.neighbour.list_owned()]


async def test_its_cores_are_counted_by_themselves(space: Space) -> None:
    before = await space.cloud.spot_cores(SPOT.pool)
    await space.made(a_spec())
    after = await space.cloud.spot_cores(SPOT.pool)

    assert before.limit is not None
    assert after.used == before.used + 2 * 24


async def test_it_keeps_no_serial_log_that_it_does_not_have(space: Space) -> None:
    with pytest.raises(NoSerialLog):
        await space.cloud.serial_log(a_spec().name, "0")


@pytest.mark.parametrize("place", [("renamed", GROUP), ("ws", "renamed")])
async def test_a_workspace_that_is_not_found_does_not_mean_that_its_clusters_are_gone(
    azure: Emulator, place: tuple[str, str]
) -> None:
    async for space in emulated_space(azure):
        spec = a_spec()
        await space.made(spec)
        lost = workspaces.sign_in(azure, "owner", {}, *place)
        said = partial(pytest.raises, Misconfigured, match="REKINDLE_AZUREML_WORKSPACE")
        for ask in (lost.get, lost.delete):
            with said():
                await ask(spec.name)
        with said():
            await lost.create(spec)
        with said():
            await lost.list_owned()
        await lost.close()

        assert len((await space.cloud.get(spec.name)).instances) == 2


async def test_no_thread_waits_for_a_cluster_to_come_or_to_go(azure: Emulator) -> None:
    async for space in emulated_space(azure):
        spec = a_spec()
        await space.cloud.create(spec)
        await space.seen(spec.name, lambda s: s is not None)
        await space.cloud.delete(spec.name)
        waiting = [t.name for t in threading.enumerate() if t.name.startswith("LROPoller")]

        assert waiting == []


async def test_clusters_are_deleted_after_the_last_offering_of_the_workspace_is_gone(
    azure: Emulator, clock: Clock
) -> None:
    async for space in emulated_space(azure):
        spec = a_spec()
        await space.made(spec)
        ours = settings(azure).model_copy(
            update={"azureml_workspace": "ws", "deployment": space.owner}
        )
        assert not ours.has_azureml
        cloud = azure_access.cloud(ours, clock)
        listed = await cloud.list_owned()
        await cloud.delete(spec.name)
        await space.seen(spec.name, lambda s: s is None)

        assert [s.name for s in listed] == [spec.name]
        with pytest.raises(ScaleSetNotFound):
            await cloud.get(spec.name)
        await cloud.close()
