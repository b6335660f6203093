"""Which actions of Azure ML a caller needs, in an emulator that asks."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.emulated.azureml import CLUSTER, ENVIRONMENT, IMAGE, JOBS, OLD, WORKSPACE, cluster, job
from tests.emulated.inside import GROUP_ID, HERE
from tests.unit.emulator.access.access_world import (
    AUTHORIZATION,
    IDENTITIES,
    OPERATOR,
    Guarded,
    code,
    guarded,
    guid,
)

PART = "Microsoft.MachineLearningServices/workspaces"


@pytest.fixture
async def workspace(tmp_path: Path) -> AsyncIterator[Guarded]:
    """Yield an emulator that enforces access, with a workspace, its environment and a cluster."""
    async with guarded(tmp_path) as made:
        image = {"properties": {"image": IMAGE}}
        for path, body in (
            (WORKSPACE, {"location": "eastus"}),
            (ENVIRONMENT, image),
            (CLUSTER, cluster()),
        ):
            (await made.owner.put(path, json=body, params=OLD)).raise_for_status()
        yield made


async def allow(workspace: Guarded, *actions: str) -> None:
    """Give the app a role with these actions on workspaces."""
    role = {
        "roleName": "Engine",
        "assignableScopes": [GROUP_ID],
        "permissions": [{"actions": [f"{PART}/{action}" for action in actions]}],
    }
    url = f"{HERE}{AUTHORIZATION}/roleDefinitions/{guid(12)}"
    (await workspace.owner.put(url, json={"properties": role})).raise_for_status()
    (await workspace.grant(guid(12))).raise_for_status()


@pytest.mark.parametrize(
    ("method", "path", "body", "action"),
    [
        ("PUT", f"{WORKSPACE}/computes/other", cluster(), "computes/write"),
        ("GET", CLUSTER, None, "computes/read"),
        ("POST", f"{CLUSTER}/listNodes", {}, "computes/listNodes/action"),
        ("PUT", f"{JOBS}/a", job(), "jobs/write"),
        ("POST", f"{JOBS}/none/cancel", {}, "jobs/cancel/action"),
        ("GET", JOBS, None, "jobs/read"),
        ("PUT", f"{WORKSPACE}/environments/e/versions/1", {}, "environments/versions/write"),
        ("GET", f"{WORKSPACE}/models/m/versions", None, "models/versions/read"),
    ],
)
async def test_each_call_needs_its_own_action(
    workspace: Guarded, method: str, path: str, body: object, action: str
) -> None:
    async def call() -> int:
        return (await workspace.app.request(method, path, json=body, params=OLD)).status_code

    before = await call()
    await allow(workspace, action)

    assert before == 403
    assert await call() != 403


async def test_a_cluster_has_only_an_identity_that_its_maker_may_assign(workspace: Guarded) -> None:
    made = await workspace.owner.put(f"{IDENTITIES}/puller", json={"location": "eastus"})
    identity = made.json()["id"]
    await allow(workspace, "computes/write")
    wanted = cluster() | {
        "identity": {"type": "UserAssigned", "userAssignedIdentities": {identity: {}}}
    }
    path = f"{WORKSPACE}/computes/pulls"
    refused = await workspace.app.put(path, json=wanted, params=OLD)
    await workspace.grant(OPERATOR, identity, name=2)
    taken = await workspace.app.put(path, json=wanted, params=OLD)

    assert code(refused) == "LinkedAuthorizationFailed"
    assert taken.status_code == 201
