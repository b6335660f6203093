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


def body(template_body: Json, **parameters: Json) -> dict[str, Json]:
    """Return the body of the request that deploys a template."""
    passed = {name: {"value": value} for name, value in parameters.items()}
    return {"properties": {"mode": "Incremental", "template": template_body, "parameters": passed}}


async def deploy(
    azure: Inside, template_body: Json, name: str = "d", **parameters: Json
) -> dict[str, Json]:
    """Deploy to the end, and return what is known of the deployment then."""
    url = f"{DEPLOYMENTS}/{name}"
    response = await azure.arm.put(url, json=body(template_body, **parameters))
    response.raise_for_status()
    return await finished(azure, name)


async def finished(azure: Inside, name: str = "d") -> dict[str, Json]:
    """Let a deployment come to its end."""
    deployment: dict[str, Json] = {}
    for _ in range(300):
        await azure.pass_time(0.1)
        for _ in range(50):  # what is not done by the step is done beside it
            await asyncio.sleep(0)
        deployment = (await azure.arm.get(f"{DEPLOYMENTS}/{name}")).json()["properties"]
        if deployment["provisioningState"] != "Running":
            return dict(deployment)
    raise AssertionError(deployment)


async def value_of(azure: Inside, expression: Json, **members: Json) -> Json:
    """Deploy an expression as an output; return its value, or the error if the deployment fails."""
    outputs = {"x": {"type": "object", "value": expression}}
    deployment = await deploy(azure, template(outputs=outputs, **members))
    return deployment["outputs"]["x"]["value"] if "outputs" in deployment else deployment["error"]


async def refusal(azure: Inside, template_body: Json, **parameters: Json) -> tuple[str, str]:
    """Return the code and the message with which a template is refused."""
    response = await azure.arm.put(f"{DEPLOYMENTS}/d", json=body(template_body, **parameters))
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    return error["code"], error["message"]


def account(name: str = "account", **members: Json) -> dict[str, Json]:
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
    return plain | members


def network(name: str = "network", **members: Json) -> dict[str, Json]:
    """Return a virtual network without subnets."""
    plain = {
        "type": "Microsoft.Network/virtualNetworks",
        "apiVersion": "2024-05-01",
        "name": name,
        "location": "eastus",
        "properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}},
    }
    return plain | members
