"""Templates for tests of deployments, and a way to deploy them to the end."""

import asyncio
from typing import Any

from tests.emulated.inside import GROUP_ID, Inside

DEPLOYMENTS = f"{GROUP_ID}/providers/Microsoft.Resources/deployments"
SCHEMA = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
Json = Any


def template(*resources: Json, **members: Json) -> dict[str, Json]:
    """Return a template with these resources and members."""
    form = {"$schema": SCHEMA, "contentVersion": "1.0.0.0", "resources": list(resources)}
    return form | members


def body(wanted: Json, **parameters: Json) -> dict[str, Json]:
    """Return the body of the request that deploys a template."""
    passed = {name: {"value": value} for name, value in parameters.items()}
    return {"properties": {"mode": "Incremental", "template": wanted, "parameters": passed}}


async def deploy(
    azure: Inside, wanted: Json, name: str = "d", **parameters: Json
) -> dict[str, Json]:
    """Deploy to the end, and return what is known of the deployment then."""
    url = f"{DEPLOYMENTS}/{name}"
    answer = await azure.arm.put(url, json=body(wanted, **parameters))
    answer.raise_for_status()
    return await finished(azure, name)


async def finished(azure: Inside, name: str = "d") -> dict[str, Json]:
    """Let a deployment come to its end."""
    shown: dict[str, Json] = {}
    for _ in range(300):
        await azure.pass_time(0.1)
        for _ in range(50):  # what is not done by the step is done beside it
            await asyncio.sleep(0)
        shown = (await azure.arm.get(f"{DEPLOYMENTS}/{name}")).json()["properties"]
        if shown["provisioningState"] != "Running":
            return dict(shown)
    raise AssertionError(shown)


async def value_of(azure: Inside, expression: Json, **members: Json) -> Json:
    """Deploy an expression as an output; return its value, or the error if the deployment fails."""
    outputs = {"x": {"type": "object", "value": expression}}
    shown = await deploy(azure, template(outputs=outputs, **members))
    return shown["outputs"]["x"]["value"] if "outputs" in shown else shown["error"]


async def refusal(azure: Inside, wanted: Json, **parameters: Json) -> tuple[str, str]:
    """Return the code and the message with which a template is refused."""
    answer = await azure.arm.put(f"{DEPLOYMENTS}/d", json=body(wanted, **parameters))
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    return error["code"], error["message"]


def account(name: str = "account", **more: Json) -> dict[str, Json]:
    """Return a storage account."""
    plain = {
        "type": "Microsoft.Storage/storageAccounts",
        "apiVersion": "2024-01-01",
        "name": name,
        "location": "eastus",
        "sku": {"name": "Standard_LRS"},
        "kind": "StorageV2",
        "properties": {},
    }
    return plain | more


def network(name: str = "network", **more: Json) -> dict[str, Json]:
    """Return a virtual network without subnets."""
    plain = {
        "type": "Microsoft.Network/virtualNetworks",
        "apiVersion": "2024-05-01",
        "name": name,
        "location": "eastus",
        "properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}},
    }
    return plain | more
