"""Which action a request is, which role allows it, and what answers to whom."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.access.actions import Need, needed
from emulator.access.assignments import within
from emulator.access.roles import built_in, matches
from emulator.app import arm
from tests.emulated import azureml as ml
from tests.emulated.inside import HERE, Inside
from tests.unit.emulator.access.access_world import (
    IDENTITIES,
    OPERATOR,
    Guarded,
    code,
    guarded,
)

GROUP = f"{HERE}/resourceGroups/g"
COMPUTE = f"{GROUP}/providers/Microsoft.Compute"
SET = f"{COMPUTE}/virtualMachineScaleSets/n"
PLACE = f"{HERE}/providers/Microsoft.Compute/locations/eastus"
SETS = "Microsoft.Compute/virtualMachineScaleSets"
RESOURCES = "Microsoft.Resources/subscriptions"


@pytest.mark.parametrize(
    ("method", "path", "action", "scope"),
    [
        ("GET", HERE, f"{RESOURCES}/read", HERE),
        ("HEAD", GROUP, f"{RESOURCES}/resourcegroups/read", GROUP),
        ("PUT", GROUP, f"{RESOURCES}/resourcegroups/write", GROUP),
        ("GET", f"{GROUP}/resources", f"{RESOURCES}/resourcegroups/resources/read", GROUP),
        ("PUT", SET, f"{SETS}/write", SET),
        ("GET", f"{COMPUTE}/virtualMachineScaleSets", f"{SETS}/read", COMPUTE),
        ("POST", f"{SET}/delete", f"{SETS}/delete/action", SET),
        ("GET", f"{SET}/instanceView", f"{SETS}/instanceView/read", SET),
        ("POST", f"{SET}/virtualMachines/0/simulateEviction",
         f"{SETS}/virtualMachines/simulateEviction/action", f"{SET}/virtualMachines/0"),
        ("POST", f"{PLACE}/placementScores/spot/generate",
         "Microsoft.Compute/locations/placementScores/generate/action",
         f"{PLACE}/placementScores/spot"),
        ("PUT", f"{SET}/providers/Microsoft.Authorization/roleAssignments/a",
         "Microsoft.Authorization/roleAssignments/write",
         f"{SET}/providers/Microsoft.Authorization/roleAssignments/a"),
        ("POST", f"{GROUP}/providers/Microsoft.CostManagement/query",
         "Microsoft.CostManagement/query/read", GROUP),
    ],
)  # fmt: skip
def test_every_request_is_an_action_over_a_scope(
    method: str, path: str, action: str, scope: str
) -> None:
    assert needed(method, path) == Need(action, scope)


@pytest.mark.parametrize(
    "path",
    [
        "/subscriptions",
        "/tenants",
        f"{HERE}/resourceGroups",
        "/providers/Microsoft.ResourceGraph/resources",
        f"{PLACE}/operations/1",
        f"{HERE}/operationresults/1",
        f"{GROUP}/providers/Microsoft.Authorization/permissions",
    ],
)
def test_what_everybody_may_ask_needs_no_role(path: str) -> None:
    assert needed("GET", path) is None


SEGMENTS = [
    "subscriptions",
    "providers",
    "resourceGroups",
    "Microsoft.X",
    "x",
    "locations",
    "",
    "*",
]


@given(st.sampled_from(["GET", "POST", "PUT", "BREW"]), st.lists(st.sampled_from(SEGMENTS)))
def test_no_path_is_too_odd_to_be_an_action(method: str, segments: list[str]) -> None:
    need = needed(method, "/" + "/".join(segments))

    assert need is None or "/" in need.action


def test_a_contributor_may_do_all_but_give_access_away() -> None:
    contributor = built_in()["b24988ac-6180-42a0-ab88-20f7382dd24c"]

    assert contributor.allows(f"{SETS}/write")
    assert contributor.allows("Microsoft.Authorization/roleAssignments/read")
    assert not contributor.allows("microsoft.authorization/ROLEASSIGNMENTS/write")


def test_a_star_covers_what_it_stands_for_and_no_more() -> None:
    assert matches(["Microsoft.Compute/*/read"], "Microsoft.Compute/disks/read")
    assert matches(["*/read"], "Microsoft.Compute/disks/read")
    assert not matches(["Microsoft.Compute/disks/read"], "Microsoft.Compute/disks/reader")
    assert not matches(["Microsoft.Compute/*"], "MicrosoftXCompute/disks/read")


def test_a_scope_holds_what_lies_in_it_but_not_its_namesakes() -> None:
    assert within(SET.upper(), GROUP)
    assert within(GROUP, "/")
    assert not within(f"{GROUP}-2", GROUP)
    assert not within(HERE, GROUP)


PART = "Microsoft.MachineLearningServices/workspaces"


@pytest.fixture
async def workspace(tmp_path: Path) -> AsyncIterator[Guarded]:
    """Yield an emulator that enforces access, with a workspace, its environment and a cluster."""
    async with guarded(tmp_path) as world:
        image = {"properties": {"image": ml.IMAGE}}
        for path, body in (
            (ml.WORKSPACE, {"location": "eastus"}),
            (ml.ENVIRONMENT, image),
            (ml.CLUSTER, ml.cluster()),
        ):
            (await world.owner.put(path, json=body, params=ml.OLD)).raise_for_status()
        yield world


@pytest.mark.parametrize(
    ("method", "path", "body", "action"),
    [
        ("PUT", f"{ml.WORKSPACE}/computes/other", ml.cluster(), "computes/write"),
        ("POST", f"{ml.JOBS}/none/cancel", {}, "jobs/cancel/action"),
        ("PUT", f"{ml.WORKSPACE}/environments/e/versions/1", {}, "environments/versions/write"),
    ],
)
async def test_each_call_needs_its_own_action(
    workspace: Guarded, method: str, path: str, body: object, action: str
) -> None:
    async def call() -> int:
        return (await workspace.app.request(method, path, json=body, params=ml.OLD)).status_code

    before = await call()
    await workspace.allow(f"{PART}/{action}")

    assert before == 403
    assert await call() != 403


async def test_a_cluster_has_only_an_identity_that_its_maker_may_assign(workspace: Guarded) -> None:
    created = await workspace.owner.put(f"{IDENTITIES}/puller", json={"location": "eastus"})
    identity = created.json()["id"]
    await workspace.allow(f"{PART}/computes/write")
    body = ml.cluster() | {
        "identity": {"type": "UserAssigned", "userAssignedIdentities": {identity: {}}}
    }
    path = f"{ml.WORKSPACE}/computes/pulls"
    refused = await workspace.app.put(path, json=body, params=ml.OLD)
    await workspace.grant(OPERATOR, identity, name=2)
    accepted = await workspace.app.put(path, json=body, params=ml.OLD)

    assert code(refused) == "LinkedAuthorizationFailed"
    assert accepted.status_code == 201


RUN = f"/history/v1.0{ml.WORKSPACE}/runs/a"


@pytest.mark.parametrize("path", ["/_emulator/principals", "/_EMULATOR/Requests"])
async def test_other_machines_cannot_move_the_emulator(inside: Inside, path: str) -> None:
    application = arm(inside.fabric)
    answers = []
    for peer in ("10.0.0.9", "127.0.0.1"):
        transport = httpx.ASGITransport(app=application, client=(peer, 50_000))
        async with httpx.AsyncClient(transport=transport, base_url="https://azure") as caller:
            answers.append((await caller.get(path)).status_code)
            answers.append((await caller.get(f"{HERE}/resourceGroups")).status_code)

    assert answers == [403, 401, 200, 401]  # ARM itself answers to everybody


async def test_the_history_of_runs_is_for_those_who_are_signed_in(inside: Inside) -> None:
    await ml.make_workspace(inside)
    await ml.submit(inside, "a")
    change = f"/history/v1.0{ml.WORKSPACE}/experiments/Default/runs/a"
    signed_in = [await inside.arm.get(RUN), await inside.arm.patch(change, json={})]
    del inside.arm.headers["authorization"]
    refused = [await inside.arm.get(RUN), await inside.arm.patch(change, json={})]
    refused += [await inside.arm.get(RUN + "/details"), await inside.arm.get(f"{ml.JOBS}/a")]

    assert [response.status_code for response in signed_in] == [200, 200]
    assert [response.status_code for response in refused] == [401] * 4
