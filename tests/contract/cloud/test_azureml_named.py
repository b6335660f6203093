"""Jobs on existing clusters of Azure ML, with the real client and the emulator."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from service import azure_access
from service.cloud.provider import InsufficientCapacity, Misconfigured, ScaleSetNotFound
from service.domain.cloud.fleet import Offering, ScaleSetFailure, ScaleSetPhase
from service.domain.states import CapacityType
from tests.clock import Clock
from tests.contract.cloud import workspaces
from tests.contract.cloud.test_azure_access import settings
from tests.contract.cloud.workspaces import IMAGE, SPOT, Space, a_spec, emulated_space, team_cluster
from tests.emulated.azureml import ENVIRONMENT, JOBS, NEW, OLD, WORKSPACE, cluster, job
from tests.emulated.process import Emulator
from tests.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore")  # azure-ai-ml and what it imports


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    with workspaces.server(tmp_path_factory.mktemp("named")) as running:
        yield running


@pytest.fixture
async def space(azure: Emulator) -> AsyncIterator[Space]:
    async for made in emulated_space(azure, named=True):
        yield made


@pytest.fixture
def client(azure: Emulator) -> Iterator[httpx.Client]:
    """Yield a client of the team that owns the clusters."""
    with azure.signed_in() as made:
        body = {"properties": {"image": IMAGE}}
        made.put(ENVIRONMENT, params=OLD, json=body).raise_for_status()
        yield made


def show_cluster(client: httpx.Client, path: str) -> Any:  # noqa: ANN401 - JSON
    return client.get(path, params=OLD).raise_for_status().json()


def put(client: httpx.Client, path: str, body: dict[str, Any]) -> None:
    client.put(path, params=NEW, json=body).raise_for_status()


def ours(client: httpx.Client) -> list[str]:
    """Return the names of the clusters that Rekindle created."""
    rows = show_cluster(client, f"{WORKSPACE}/computes")["value"]
    return [row["name"] for row in rows if row["name"].startswith("rk-")]


async def test_others_on_the_cluster_are_left_alone(
    azure: Emulator, client: httpx.Client, space: Space
) -> None:
    team = team_cluster(azure, SPOT, most=3)
    cloud = workspaces.sign_in(azure, space.owner, {SPOT: team})
    spec, path = a_spec(), f"{WORKSPACE}/computes/{team}"
    theirs = job(said="exec sleep 600", computeId=path)
    put(client, f"{JOBS}/theirs", theirs)
    seen = await replace(space, cloud=cloud).made(spec)
    await cloud.delete(spec.name)
    await space.seen(spec.name, lambda s: s is None)

    assert len(seen.instances) == 2
    assert show_cluster(client, f"{JOBS}/theirs")["properties"]["status"] == "Running"
    assert show_cluster(client, path)["properties"]["provisioningState"] == "Succeeded"
    assert ours(client) == []
    await cloud.close()


async def test_a_job_is_found_and_ended_when_the_settings_name_its_cluster_no_more(
    azure: Emulator, client: httpx.Client, space: Space
) -> None:
    spec = a_spec()
    before = await space.made(spec)
    cloud = workspaces.sign_in(azure, space.owner)
    await cloud.create(spec)
    assert await cloud.get(spec.name) == before
    await cloud.delete(spec.name)
    await space.seen(spec.name, lambda s: s is None)

    assert ours(client) == []
    await cloud.close()


async def test_the_settings_name_the_cluster(azure: Emulator, clock: Clock, space: Space) -> None:
    team = team_cluster(azure, SPOT)
    named = f"{SPOT.vm_size}@{SPOT.region}:azureml={team}"
    told = settings(azure).model_dump() | {"azureml_workspace": "ws", "offerings": named}
    cloud = azure_access.cloud(type(settings(azure))(**told), clock)
    spec = a_spec()
    await cloud.create(spec)

    found = await cloud.get(spec.name)
    assert (found.phase, found.name) == (ScaleSetPhase.CREATING, spec.name)
    await cloud.delete(spec.name)
    await cloud.close()


async def test_a_job_that_failed_says_why_until_it_is_deleted(space: Space) -> None:
    spec = replace(a_spec(), image="example/unknown:1")
    await space.cloud.create(spec)
    seen = await space.seen(spec.name, lambda s: s is not None and s.phase is ScaleSetPhase.FAILED)
    await space.cloud.delete(spec.name)

    assert seen is not None
    assert seen.failure is ScaleSetFailure.MISCONFIGURED
    assert "REKINDLE_TRAINER_IMAGE" in seen.error_message
    with pytest.raises(ScaleSetNotFound):
        await space.cloud.get(spec.name)


@pytest.mark.parametrize(
    ("offering", "nodes", "error", "said"),
    [
        (SPOT, 3, InsufficientCapacity, "--max-instances 3"),
        (replace(SPOT, vm_size="Standard_ND96asr_v4"), 1, Misconfigured, "REKINDLE_OFFERINGS says"),
        (replace(SPOT, capacity_type=CapacityType.ON_DEMAND), 1, Misconfigured, "on-demand"),
    ],
)
async def test_a_cluster_that_does_not_fit_is_refused_with_what_to_do(
    azure: Emulator, offering: Offering, nodes: int, error: type[Exception], said: str
) -> None:
    cloud = workspaces.sign_in(azure, "owner", {offering: team_cluster(azure, SPOT)})
    with pytest.raises(error, match=said):
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
