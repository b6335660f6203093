"""Workspaces, and the discovery document that leads clients to their run history."""

import uuid
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.aml import removal
from emulator.aml.assets import (
    WORKSPACE,
    find_workspace,
    lookup,
    of_type,
    properties,
    refuse_while_going,
    resource_as_json,
    workspace_id,
)
from emulator.arm.front_door import base_url, fabric_of, page, read_json
from emulator.arm.resource_groups import find_group, list_start
from emulator.arm.tags import tags_of
from emulator.core.catalog import region_name
from emulator.core.errors import invalid, wrong_location
from emulator.core.state import ResourceRow

MEMBERS = ("tags", "sku", "kind", "identity")  # beside the properties


async def put(request: Request) -> Response:
    """Create a workspace, or replace its properties; it is there at once."""
    fabric, group = fabric_of(request), find_group(request)
    body = await read_json(request)
    changes = _properties(body)
    old = lookup(fabric, workspace_id(request))
    if old:
        refuse_while_going(old)
    location = region_name(body.get("location") or (old or group).location)
    if old and old.location != location:
        raise wrong_location(old.name, old.location, group.name, location)
    workspace = old or ResourceRow(
        id=workspace_id(request),
        type=WORKSPACE,
        location=location,
        body={"properties": {"workspaceId": str(uuid.uuid4())}},
        created_at=fabric.now(),
    )
    facts = {
        "workspaceId": properties(workspace)["workspaceId"],
        "discoveryUrl": f"{base_url(request)}/discovery",
        "provisioningState": "Succeeded",
        "friendlyName": changes.get("friendlyName") or workspace.name,
        "publicNetworkAccess": changes.get("publicNetworkAccess") or "Enabled",
    }
    members = _members(body) | {"location": location}
    members["properties"] = properties(workspace) | changes | facts
    workspace = fabric.state.put(replace(workspace, body=workspace.body | members))
    fabric.changed()
    return JSONResponse(_body(request, workspace), status_code=200 if old else 201)


async def patch(request: Request) -> Response:
    """Change tags and properties."""
    body = await read_json(request)
    fabric, workspace = fabric_of(request), find_workspace(request)
    changes = _properties(body)
    fixed = ("workspaceId", "discoveryUrl", "provisioningState")
    retained = {k: v for k, v in properties(workspace).items() if k not in changes or k in fixed}
    members = _members(body) | {"properties": changes | retained}
    workspace = fabric.state.change(workspace, body=workspace.body | members)
    fabric.changed()
    return JSONResponse(_body(request, workspace))


async def get(request: Request) -> Response:
    """Show one."""
    return JSONResponse(_body(request, find_workspace(request)))


async def list_all(request: Request) -> Response:
    """List those of a resource group or the subscription."""
    start, rows = list_start(request), of_type(fabric_of(request), WORKSPACE)
    return page(request, [_body(request, r) for r in rows if r.key.startswith(start)])


async def delete(request: Request) -> Response:
    """Begin deleting one with all that is in it."""
    fabric = fabric_of(request)
    find_group(request)
    workspace = lookup(fabric, workspace_id(request))
    if workspace is None:
        return Response(status_code=204)
    operation = removal.begin_delete(fabric, workspace, workspace.location)
    fabric.changed()
    return Response(status_code=202, headers=removal.headers(request, operation, "workspace"))


async def discovery(request: Request) -> Response:
    """Return the addresses of a workspace's other services: all of them are here."""
    url = base_url(request)
    names = ("api", "catalog", "experimentation", "gallery", "history", "hyperdrive", "labeling")
    further_names = ("modelmanagement", "notebooks", "pipelines", "studio", "tracking")
    return JSONResponse(dict.fromkeys(names + further_names, url))


def _properties(body: dict[str, Any]) -> dict[str, Any]:
    value = body.get("properties") or {}
    if not isinstance(value, dict):
        raise invalid("The workspace's properties must be an object.", "InvalidRequestContent")
    return value


def _members(body: dict[str, Any]) -> dict[str, Any]:
    tags = {"tags": tags_of(body)} if "tags" in body else {}
    return {k: body[k] for k in MEMBERS if k in body} | tags


def _body(request: Request, workspace: ResourceRow) -> dict[str, object]:
    """Return it as ARM answers it; the port may be another than when it was made."""
    discovery_url, state = f"{base_url(request)}/discovery", workspace.provisioning_state
    return resource_as_json(workspace, discoveryUrl=discovery_url, provisioningState=state)
