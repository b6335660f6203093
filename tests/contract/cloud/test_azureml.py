"""Contract of clusters in Azure ML, our own and existing ones."""

import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import pytest

from contract.choices import Engine
from service import azure_access
from service.cloud.provider import (
    ATTEMPT_TAG,
    InsufficientCapacity,
    Misconfigured,
    NoSerialLog,
    ScaleSetNotFound,
)
from service.domain.cloud.fleet import Offering, ScaleSet, ScaleSetFailure, ScaleSetPhase
from service.domain.states import CapacityType
from tests.clock import Clock
from tests.contract.cloud import workspaces
from tests.contract.cloud.test_azure_access import settings
from tests.contract.cloud.workspaces import (
    FULL,
    IMAGE,
    SPOT,
    Space,
    a_spec,
    emulated_space,
    fake_space,
    team_cluster,
)
from tests.emulated.azureml import ENVIRONMENT, JOBS, NEW, OLD, WORKSPACE, cluster, job
from tests.emulated.process import GROUP, Emulator
from tests.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore")  # azure-ai-ml and what it imports


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    with workspaces.server(tmp_path_factory.mktemp("workspace")) as running:
        yield running


@pytest.fixture(params=["fake", "emulator", "named"])
async def space(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[Space]:
    """Yield each kind of workspace; ``named`` uses an existing cluster."""
    form = request.param
    async for workspace in (
        fake_space(clock)
        if form == "fake"
        else emulated_space(request.getfixturevalue("azure"), named=form == "named")
    ):
        yield workspace


def has_failed(scale_set: ScaleSet | None) -> bool:
    return scale_set is not None and scale_set.phase is ScaleSetPhase.FAILED


async def test_an_evicted_node_leaves_fewer_that_run_than_were_ordered(space: Space) -> None:
    spec = a_spec()
    before = await space.made(spec)
    await space.preempt(spec.name, before.instances[0].vm_id)

    scale_set = await space.wait_for_state(
        spec.name, lambda s: s is not None and sum(i.running for i in s.instances) < 2
    )
    assert scale_set is not None
    assert before.instances[0].vm_id not in [i.vm_id for i in scale_set.instances if i.running]


async def test_one_for_which_there_is_no_room_says_so(space: Space) -> None:
    failed = await space.until(partial(space.order, a_spec(FULL)), has_failed)

    assert failed.failure is ScaleSetFailure.NO_CAPACITY
    assert not any(i.running for i in failed.instances)


async def test_a_deleted_one_is_seen_to_be_gone(space: Space) -> None:
    spec = a_spec()
    await space.made(spec)
    await space.cloud.delete(spec.name)
    await space.wait_for_state(spec.name, lambda s: s is None or s.phase is ScaleSetPhase.DELETING)
    await space.wait_for_state(spec.name, lambda s: s is None)

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


@pytest.mark.parametrize("workspace", [("renamed", GROUP), ("ws", "renamed")])
async def test_a_workspace_that_is_not_found_does_not_mean_that_its_clusters_are_gone(
    azure: Emulator, workspace: tuple[str, str]
) -> None:
    async for space in emulated_space(azure):
        spec = a_spec()
        await space.made(spec)
        cloud = workspaces.sign_in(azure, "owner", {}, *workspace)
        refused = partial(pytest.raises, Misconfigured, match="REKINDLE_AZUREML_WORKSPACE")
        for ask in (cloud.get, cloud.delete):
            with refused():
                await ask(spec.name)
        with refused():
            await cloud.create(spec)
        with refused():
            await cloud.list_owned()
        await cloud.close()

        assert len((await space.cloud.get(spec.name)).instances) == 2


async def test_no_thread_waits_for_a_cluster_to_come_or_to_go(azure: Emulator) -> None:
    async for space in emulated_space(azure):
        spec = a_spec()
        await space.cloud.create(spec)
        await space.wait_for_state(spec.name, lambda s: s is not None)
        await space.cloud.delete(spec.name)
        waiting = [t.name for t in threading.enumerate() if t.name.startswith("LROPoller")]

        assert waiting == []


async def test_clusters_are_deleted_after_the_last_offering_of_the_workspace_is_gone(
    azure: Emulator, clock: Clock
) -> None:
    async for space in emulated_space(azure):
        spec = a_spec()
        await space.made(spec)
        configured = settings(azure).model_copy(
            update={"azureml_workspace": "ws", "deployment": space.owner}
        )
        assert not configured.has_azureml
        cloud = azure_access.cloud(configured, clock)
        clusters = await cloud.list_owned()
        await cloud.delete(spec.name)
        await space.wait_for_state(spec.name, lambda s: s is None)

        assert [s.name for s in clusters] == [spec.name]
        with pytest.raises(ScaleSetNotFound):
            await cloud.get(spec.name)
        await cloud.close()


@pytest.fixture
async def named(azure: Emulator) -> AsyncIterator[Space]:
    async for workspace in emulated_space(azure, named=True):
        yield workspace


@pytest.fixture
def client(azure: Emulator) -> Iterator[httpx.Client]:
    """Yield a client of the team that owns the clusters."""
    with azure.signed_in() as http:
        body = {"properties": {"image": IMAGE}}
        http.put(ENVIRONMENT, params=OLD, json=body).raise_for_status()
        yield http


def show_cluster(client: httpx.Client, path: str) -> Any:  # noqa: ANN401 - JSON
    return client.get(path, params=OLD).raise_for_status().json()


def put(client: httpx.Client, path: str, body: dict[str, Any]) -> None:
    client.put(path, params=NEW, json=body).raise_for_status()


def owned_clusters(client: httpx.Client) -> set[str]:
    """Return the names of the clusters that Rekindle created."""
    rows = show_cluster(client, f"{WORKSPACE}/computes")["value"]
    return {row["name"] for row in rows if row["name"].startswith("rk-")}


async def test_others_on_the_cluster_are_left_alone(
    azure: Emulator, client: httpx.Client, named: Space
) -> None:
    existing = owned_clusters(client)
    team = team_cluster(azure, SPOT, most=3)
    cloud = workspaces.sign_in(azure, named.owner, {SPOT: team})
    spec, path = a_spec(), f"{WORKSPACE}/computes/{team}"
    other_job = job(command="exec sleep 600", computeId=path)
    put(client, f"{JOBS}/theirs", other_job)
    scale_set = await replace(named, cloud=cloud).made(spec)
    await cloud.delete(spec.name)
    await named.wait_for_state(spec.name, lambda s: s is None)

    assert len(scale_set.instances) == 2
    assert show_cluster(client, f"{JOBS}/theirs")["properties"]["status"] == "Running"
    assert show_cluster(client, path)["properties"]["provisioningState"] == "Succeeded"
    assert owned_clusters(client) <= existing  # clusters of other tests
    await cloud.close()


async def test_a_job_is_found_and_ended_when_the_settings_name_its_cluster_no_more(
    azure: Emulator, client: httpx.Client, named: Space
) -> None:
    existing = owned_clusters(client)
    spec = a_spec()
    before = await named.made(spec)
    cloud = workspaces.sign_in(azure, named.owner)
    await cloud.create(spec)
    assert await cloud.get(spec.name) == before
    await cloud.delete(spec.name)
    await named.wait_for_state(spec.name, lambda s: s is None)

    assert owned_clusters(client) <= existing  # clusters of other tests
    await cloud.close()


async def test_the_settings_name_the_cluster(azure: Emulator, clock: Clock, named: Space) -> None:
    team = team_cluster(azure, SPOT)
    offered = f"{SPOT.vm_size}@{SPOT.region}:azureml={team}"
    values = settings(azure).model_dump() | {"azureml_workspace": "ws", "offerings": offered}
    cloud = azure_access.cloud(type(settings(azure))(**values), clock)
    spec = a_spec()
    await cloud.create(spec)

    scale_set = await cloud.get(spec.name)
    assert (scale_set.phase, scale_set.name) == (ScaleSetPhase.CREATING, spec.name)
    await cloud.delete(spec.name)
    await cloud.close()


@pytest.mark.parametrize("is_named", [False, True])
async def test_a_job_that_failed_says_why_until_it_is_deleted(
    azure: Emulator, *, is_named: bool
) -> None:
    async for space in emulated_space(azure, named=is_named):
        spec = replace(a_spec(), image="example/unknown:1")
        scale_set = await space.until(partial(space.order, spec), has_failed)
        await space.cloud.delete(spec.name)
        await space.wait_for_state(spec.name, lambda s: s is None)

        assert scale_set.failure is ScaleSetFailure.MISCONFIGURED
        assert "REKINDLE_TRAINER_IMAGE" in scale_set.error_message


@pytest.mark.parametrize(
    ("offering", "nodes", "error", "message"),
    [
        (SPOT, 3, InsufficientCapacity, "--max-instances 3"),
        (replace(SPOT, vm_size="Standard_ND96asr_v4"), 1, Misconfigured, "REKINDLE_OFFERINGS says"),
        (replace(SPOT, capacity_type=CapacityType.ON_DEMAND), 1, Misconfigured, "on-demand"),
    ],
)
async def test_a_cluster_that_does_not_fit_is_refused_with_what_to_do(
    azure: Emulator, offering: Offering, nodes: int, error: type[Exception], message: str
) -> None:
    cloud = workspaces.sign_in(azure, "owner", {offering: team_cluster(azure, SPOT)})
    with pytest.raises(error, match=message):
        await cloud.create(a_spec(offering, nodes))
    await cloud.close()


async def test_a_cluster_that_is_not_there_is_refused_with_what_to_do(azure: Emulator) -> None:
    cloud = workspaces.sign_in(azure, "owner", {SPOT: "team-gone"})
    with pytest.raises(Misconfigured, match="no cluster team-gone"):
        await cloud.create(a_spec())
    await cloud.close()


async def test_idle_nodes_of_the_cluster_do_not_count_as_used(
    azure: Emulator, client: httpx.Client
) -> None:
    plain = workspaces.sign_in(azure, "owner")
    team = team_cluster(azure, SPOT, most=1)
    named = workspaces.sign_in(azure, "owner", {SPOT: team})
    path = f"{WORKSPACE}/computes/{team}"
    before = await plain.spot_cores(SPOT.pool)
    put(client, path, cluster(1, least=1, vmSize=SPOT.vm_size))

    async def idle() -> int:
        counts = show_cluster(client, path)["properties"]["properties"]["nodeStateCounts"]
        return int(counts["idleNodeCount"])

    await until(idle, lambda count: count == 1)
    assert (await plain.spot_cores(SPOT.pool)).used == before.used + 24
    assert (await named.spot_cores(SPOT.pool)).used == before.used
    await plain.close()
    await named.close()


async def test_a_cluster_comes_up_once_with_all_its_nodes(space: Space) -> None:
    spec = a_spec()
    with pytest.raises(NoSerialLog):
        await space.cloud.serial_log(spec.name, "0")
    scale_set = await space.made(spec)
    await space.cloud.create(spec)
    await space.cloud.refill(spec.name, 2, useless=[scale_set.instances[0].vm_id])  # left to Azure

    assert scale_set.name == spec.name
    assert len({i.vm_id for i in scale_set.instances if i.running}) == 2
    assert (scale_set.engine, scale_set.region, scale_set.vm_size) == (
        Engine.AZUREML,
        "eastus",
        SPOT.vm_size,
    )
    assert scale_set.capacity_type is SPOT.capacity_type
    assert scale_set.tags[ATTEMPT_TAG] == spec.tags[ATTEMPT_TAG]
    assert await space.cloud.get(spec.name) == scale_set
    assert [(s.name, s.capacity) for s in await space.cloud.list_owned()] == [(spec.name, 2)]
