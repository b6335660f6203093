"""Deployments in the state: what is answered of them, and what it takes to carry them out.

A deployment is a `ResourceRow` whose body has, beside its properties, the template, the operations
done so far and, while it runs, ``run``: what was passed to it, and how far it got.
"""

import uuid
from typing import Any

from emulator.access.identity.directory import TENANT
from emulator.arm.views import group_body
from emulator.core.state import ResourceGroup, ResourceRow
from emulator.core.timestamps import timestamp
from emulator.deployments import parameters
from emulator.deployments.scopes import DeploymentPlace
from emulator.deployments.templates import DeploymentPlan
from emulator.fabric import Fabric

Json = Any
DEPLOYMENTS = "Microsoft.Resources/deployments"
NAME = r"[\w.()-]{1,64}"


def running(resource: ResourceRow) -> bool:
    """Whether it is a deployment that is not over."""
    return resource.type == DEPLOYMENTS and bool(resource.body.get("run"))


def deployment_place(group: ResourceGroup) -> DeploymentPlace:
    """Return the values of `resourceGroup()` and `subscription()` in a deployment."""
    return DeploymentPlace(
        subscription={
            "id": f"/subscriptions/{group.subscription}",
            "subscriptionId": group.subscription,
            "tenantId": TENANT,
            "displayName": "Azure on localhost",
        },
        group=group_body(group),
    )


def new_deployment(
    fabric: Fabric, id_: str, plan: DeploymentPlan, form: Json, call: Json
) -> ResourceRow:
    """Return a new deployment; ``call`` is what a PUT of its resources needs."""
    properties = summary(fabric, plan)
    properties["provisioningState"] = "Running"
    run = {"parameters": form.get("parameters") or {}, "call": call, "steps": {}}
    return ResourceRow(
        id=id_,
        type=DEPLOYMENTS,
        location="",
        body={
            "properties": properties,
            "operations": [],
            "template": form["template"],
            "run": run,
        },
        created_at=fabric.now(),
    )


def close(fabric: Fabric, resource: ResourceRow, **properties: Json) -> None:
    """End a deployment with these properties, and forget what was passed to it: secrets too."""
    ended = {"properties": resource.body["properties"] | properties, "run": None}
    fabric.state.change(resource, body=resource.body | ended)


def summary(fabric: Fabric, plan: DeploymentPlan) -> dict[str, Json]:
    """Return the properties of a deployment that is valid."""
    return {
        "parameters": parameters.parameters_as_json(plan.declared, plan.scope.parameters),
        "mode": "Incremental",
        "provisioningState": "Succeeded",
        "timestamp": timestamp(fabric.now()),
        "duration": "PT0S",
        "correlationId": str(uuid.uuid4()),
    }


def body(resource: ResourceRow) -> dict[str, Json]:
    """Return a deployment as ARM answers it."""
    return {
        "id": resource.id,
        "name": resource.name,
        "type": DEPLOYMENTS,
        "properties": resource.body["properties"],
    }
