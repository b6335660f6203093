"""Requests for deployments in a resource group: put, show, validate."""

import re
import uuid
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.arm.front_door import base_url, fabric_of, page, read_json
from emulator.arm.resource_groups import find_group
from emulator.core.errors import ArmError, invalid
from emulator.core.state import ResourceRow, group_id
from emulator.deployments import preflight, records, templates
from emulator.deployments.templates import DeploymentPlan

Json = Any
RETRY_AFTER = {"Retry-After": "1"}


async def put(request: Request) -> Response:
    """Check a deployment, and begin to carry it out."""
    fabric = fabric_of(request)
    id_, name = _names(request)
    old = fabric.state.resources.get(id_.lower())
    if old and records.running(old):
        raise ArmError(
            409,
            "DeploymentActive",
            f"Unable to edit or replace deployment '{name}': previous deployment is still active. "
            "Please see https://aka.ms/arm-deploy for usage details.",
        )
    form, plan = await _plan_deployment(request, name)
    preflight.check(fabric, request, name, plan)
    deployment = records.new_deployment(fabric, old.id if old else id_, plan, form, _call(request))
    fabric.state.put(deployment)
    fabric.changed()
    version = request.query_params["api-version"]
    poll = f"{base_url(request)}{id_}/operationStatuses/{uuid.uuid4()}?api-version={version}"
    headers = {"Azure-AsyncOperation": poll} | RETRY_AFTER
    body = records.body(deployment)
    body["properties"] = {**body["properties"], "provisioningState": "Accepted"}
    return JSONResponse(body, status_code=200 if old else 201, headers=headers)


async def validate(request: Request) -> Response:
    """Say whether a deployment could begin."""
    id_, name = _names(request)
    _, plan = await _plan_deployment(request, name)
    preflight.check(fabric_of(request), request, name, plan)
    properties = records.summary(fabric_of(request), plan)
    properties["validatedResources"] = [{"id": step.id} for step in plan.steps if step.enabled]
    body = {"id": id_, "name": name, "type": records.DEPLOYMENTS, "properties": properties}
    return JSONResponse(body)


async def status(request: Request) -> Response:
    """Show the state of a deployment."""
    properties = _find_deployment(request).body["properties"]
    state = str(properties["provisioningState"])
    body: dict[str, Json] = {"status": state}
    if properties.get("error"):
        body["error"] = properties["error"]
    return JSONResponse(body, headers=RETRY_AFTER if state == "Running" else None)


async def get(request: Request) -> Response:
    """Show one."""
    return JSONResponse(records.body(_find_deployment(request)))


async def list_all(request: Request) -> Response:
    """List those of the group, the latest first."""
    inside = find_group(request).key + "/"
    rows = [r for r in fabric_of(request).state.resources.values() if r.key.startswith(inside)]
    deployments = [r for r in rows if r.type == records.DEPLOYMENTS]
    return page(
        request, [records.body(r) for r in sorted(deployments, key=lambda r: -r.created_at)]
    )


async def operations(request: Request) -> Response:
    """List the operations of a deployment so far."""
    return page(request, _find_deployment(request).body["operations"])


def _names(request: Request) -> tuple[str, str]:
    names = request.path_params
    group, name = group_id(names["subscription"], names["group"]), names["deployment"]
    return f"{group}/providers/{records.DEPLOYMENTS}/{name}", name


def _find_deployment(request: Request) -> ResourceRow:
    find_group(request)
    id_, name = _names(request)
    if (deployment := fabric_of(request).state.resources.get(id_.lower())) is None:
        text = f"Deployment '{name}' could not be found."
        raise ArmError(404, "DeploymentNotFound", text)
    return deployment


async def _plan_deployment(request: Request, name: str) -> tuple[Json, DeploymentPlan]:
    """Return the properties in the body and the plan of its template, or raise ArmError."""
    group = find_group(request)
    if not re.fullmatch(records.NAME, name):
        raise invalid(
            f"The provided deployment name '{name}' is not valid. It may have up to 64 letters, "
            "digits, '-', '_', '.', '(' and ')'.",
            "InvalidDeploymentName",
        )
    form = (await read_json(request, lenient=True)).get("properties")
    if not isinstance(form, dict):
        raise invalid(
            "The request content is invalid: it has no 'properties'.", "InvalidRequestContent"
        )
    if str(form.get("mode", "Incremental")).lower() != "incremental":
        raise invalid(
            "The emulator deploys in mode 'Incremental' only: delete by hand what is to go.",
            "InvalidDeploymentMode",
        )
    if "template" not in form:
        raise invalid(
            "The emulator needs the template itself in 'properties.template': it follows no links.",
            "InvalidTemplate",
        )
    place = records.deployment_place(group)
    return form, templates.plan(form["template"], form.get("parameters"), place)


def _call(request: Request) -> dict[str, str]:
    """Return what requests on behalf of the same caller need."""
    return {"base": base_url(request), "authorization": request.headers.get("authorization", "")}
