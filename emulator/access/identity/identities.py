"""User-assigned identities, as ARM resources."""

import uuid
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.access.identity.directory import IDENTITY, TENANT
from emulator.arm.front_door import fabric_of, page, read_json
from emulator.arm.resource_groups import find_group, list_start
from emulator.arm.tags import tags_of
from emulator.core.catalog import check_location
from emulator.core.errors import resource_not_found, wrong_location
from emulator.core.state import ResourceGroup, ResourceRow, group_id

PROVIDER = "/providers/Microsoft.ManagedIdentity/userAssignedIdentities"


async def put(request: Request) -> Response:
    """Create one, or change its tags; Azure draws the ids."""
    fabric, group = fabric_of(request), find_group(request)
    body = await read_json(request)
    old = _lookup(request)
    location = str(body.get("location") or (old.location if old else ""))
    location = check_location(location, IDENTITY)
    if old and location != old.location:
        raise wrong_location(old.name, old.location, group.name, location)
    ids = {"tenantId": TENANT, "principalId": str(uuid.uuid4()), "clientId": str(uuid.uuid4())}
    properties = old.body["properties"] if old else ids
    resource = ResourceRow(
        id=old.id if old else _new_id(group, request.path_params["name"]),
        type=IDENTITY,
        location=location,
        body={"tags": tags_of(body), "properties": properties},
        created_at=old.created_at if old else fabric.now(),
    )
    fabric.state.put(resource)
    fabric.changed()
    headers = None if old else {"Location": resource.id}
    return JSONResponse(_as_json(resource), status_code=200 if old else 201, headers=headers)


async def get(request: Request) -> Response:
    """Show one."""
    return JSONResponse(_as_json(_find_identity(request)))


async def list_all(request: Request) -> Response:
    """List those of a resource group or the subscription."""
    start, resources = list_start(request), fabric_of(request).state.resources.values()
    rows = [_as_json(r) for r in resources if r.key.startswith(start) and r.type == IDENTITY]
    return page(request, rows)


async def delete(request: Request) -> Response:
    """Delete one; 204 where there is none."""
    fabric, resource = fabric_of(request), _lookup(request)
    if resource is None:
        return Response(status_code=204)
    fabric.state.remove(resource)
    fabric.changed()
    return Response()


def _find_identity(request: Request) -> ResourceRow:
    find_group(request)
    if (resource := _lookup(request)) is None:
        names = request.path_params
        raise resource_not_found(f"{IDENTITY}/{names['name']}", names["group"])
    return resource


def _lookup(request: Request) -> ResourceRow | None:
    return fabric_of(request).state.resources.get(_id(request).lower())


def _new_id(group: ResourceGroup, name: str) -> str:
    return f"{group_id(group.subscription, group.name)}{PROVIDER}/{name}"


def _id(request: Request) -> str:
    names = request.path_params
    return f"{group_id(names['subscription'], names['group'])}{PROVIDER}/{names['name']}"


def _as_json(resource: ResourceRow) -> dict[str, Any]:
    return {
        "id": resource.id,
        "name": resource.name,
        "type": resource.type,
        "location": resource.location,
        **resource.body,
    }
