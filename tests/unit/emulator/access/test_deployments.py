"""Deployments act with the rights of whoever deploys, and no others."""

import asyncio
from typing import Any

from tests.emulated.inside import GROUP_ID, HERE
from tests.unit.emulator.access.access_world import AUTHORIZATION, READER, Guarded, guid
from tests.unit.emulator.deployments.deployed import account, body, template

DEPLOYMENT = f"{GROUP_ID}/providers/Microsoft.Resources/deployments/d"
STORAGE = "Microsoft.Storage/storageAccounts"
ACCOUNT = f"{GROUP_ID}/providers/{STORAGE}/account"
DEPLOYS = ("Microsoft.Resources/deployments/*", f"{STORAGE}/read", f"{STORAGE}/write")


async def allow(world: Guarded, *actions: str) -> None:
    """Let the app do these things in the group, and no others."""
    role = {
        "roleName": "Deployer",
        "assignableScopes": [GROUP_ID],
        "permissions": [{"actions": list(actions)}],
    }
    url = f"{HERE}{AUTHORIZATION}/roleDefinitions/{guid(12)}"
    (await world.owner.put(url, json={"properties": role})).raise_for_status()
    (await world.grant(guid(12))).raise_for_status()


async def finished(world: Guarded) -> dict[str, Any]:
    """Run the deployment to its end and return its properties."""
    shown: dict[str, Any] = {}
    for _ in range(100):
        await world.fabric.step()
        for _ in range(50):  # what is not done by the step is done beside it
            await asyncio.sleep(0)
        shown = (await world.owner.get(DEPLOYMENT)).json()["properties"]
        if shown["provisioningState"] != "Running":
            break
    return shown


async def test_a_template_reads_nothing_that_its_deployer_may_not_read(world: Guarded) -> None:
    other = f"{HERE}/resourceGroups/other"
    (await world.owner.put(other, json={"location": "eastus"})).raise_for_status()
    plain = {"location": "eastus", "kind": "StorageV2", "sku": {"name": "Standard_LRS"}}
    url = f"{other}/providers/{STORAGE}/secret"
    (await world.owner.put(url, json=plain)).raise_for_status()
    tier = f"[reference('{url}', '2024-01-01').accessTier]"
    wanted = body(template(account(), outputs={"tier": {"type": "string", "value": tier}}))
    await allow(world, *DEPLOYS)
    (await world.app.put(DEPLOYMENT, json=wanted)).raise_for_status()
    refused = await finished(world)
    (await world.grant(READER, other, name=2)).raise_for_status()
    (await world.app.put(DEPLOYMENT, json=wanted)).raise_for_status()
    allowed = await finished(world)

    assert refused["provisioningState"] == "Failed"
    assert f"action '{STORAGE}/read' over scope" in str(refused["error"])
    assert allowed["outputs"]["tier"]["value"] == "Hot"


async def test_a_right_that_is_taken_away_is_missed_while_the_deployment_runs(
    world: Guarded,
) -> None:
    await allow(world, *DEPLOYS)
    (await world.app.put(DEPLOYMENT, json=body(template(account())))).raise_for_status()
    given = f"{GROUP_ID}{AUTHORIZATION}/roleAssignments/{guid(1)}"
    (await world.owner.delete(given)).raise_for_status()
    shown = await finished(world)

    assert [e["code"] for e in shown["error"]["details"]] == ["AuthorizationFailed"]
    assert (await world.owner.get(ACCOUNT)).status_code == 404
