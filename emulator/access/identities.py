"""User-assigned identities and their federated credentials, as ARM resources."""

import uuid
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.access.directory import IDENTITY, TENANT
from emulator.access.federation import CREDENTIAL
from emulator.catalog import region_name
from emulator.errors import ArmError, elsewhere, invalid, resource_not_found
from emulator.front_door import fabric_of, page, read_json
from emulator.resource_groups import find_group
from emulator.state import Resource, group_id
from emulator.tags import tags_of

PROVIDER = "/providers/Microsoft.ManagedIdentity/userAssignedIdentities"


async def put(request: Request) -> Response:
    """Create one, or change its tags; Azure draws the ids."""
    fabric, group = fabric_of(request), find_group(request)
    body = await read_json(request)
    old = _lookup(request)
    location = str(body.get("location") or (old.location if old else ""))
    if not location:
        raise invalid("The location property is required for this definition.", "LocationRequired")
    if old and region_name(location) != old.location:
        raise elsewhere(old.name, old.location, group.name, region_name(location))
    ids = {"tenantId": TENANT, "principalId": str(uuid.uuid4()), "clientId": str(uuid.uuid4())}
    known = old.body["properties"] if old else ids
    resource = Resource(
        id=old.id
        if old
        else f"{group_id(group.subscription, group.name)}{PROVIDER}/{request.path_params['name']}",
        type=IDENTITY,
        location=region_name(location),
        body={"tags": tags_of(body), "properties": known},
        created_at=old.created_at if old else fabric.now(),
    )
    fabric.state.resources[resource.key] = resource
    fabric.changed()
    return JSONResponse(_shown(resource), status_code=200 if old else 201)


async def patch(request: Request) -> Response:
    """Change the tags."""
    fabric, resource = fabric_of(request), _found(request)
    body = await read_json(request)
    if "tags" in body:
        resource.body = resource.body | {"tags": tags_of(body)}
        fabric.changed()
    return JSONResponse(_shown(resource))


async def get(request: Request) -> Response:
    """Show one."""
    return JSONResponse(_shown(_found(request)))


async def list_in_group(request: Request) -> Response:
    """List those of a resource group."""
    group = find_group(request)
    return page(request, _rows(request, f"{group.key}/", IDENTITY))


async def list_all(request: Request) -> Response:
    """List those of the subscription."""
    inside = f"/subscriptions/{request.path_params['subscription']}/".lower()
    return page(request, _rows(request, inside, IDENTITY))


async def delete(request: Request) -> Response:
    """Delete one with its credentials."""
    fabric, resource = fabric_of(request), _lookup(request)
    if resource is None:
        return Response(status_code=204)
    inside = f"{resource.key}/"
    for key in [k for k in fabric.state.resources if k == resource.key or k.startswith(inside)]:
        del fabric.state.resources[key]
    fabric.changed()
    return Response()


async def put_credential(request: Request) -> Response:
    """Say whose tokens are believed to be of this identity."""
    fabric, parent = fabric_of(request), _found(request)
    told = (await read_json(request)).get("properties")
    told = told if isinstance(told, dict) else {}
    for member in ("issuer", "subject", "audiences"):
        if not told.get(member):
            raise invalid(f"The property '{member}' is required.", "InvalidRequestContent")
    audiences = told["audiences"]
    if not isinstance(audiences, list) or not all(isinstance(a, str) for a in audiences):
        raise invalid("The property 'audiences' must be a list.", "InvalidRequestContent")
    old = _credential(request)
    resource = Resource(
        id=f"{parent.id}/federatedIdentityCredentials/{request.path_params['credential']}",
        type=CREDENTIAL,
        location="",
        body={"properties": {k: told[k] for k in ("issuer", "subject", "audiences")}},
        created_at=old.created_at if old else fabric.now(),
    )
    fabric.state.resources[resource.key] = resource
    fabric.changed()
    return JSONResponse(_shown(resource), status_code=200 if old else 201)


async def get_credential(request: Request) -> Response:
    """Show a federated credential."""
    _found(request)
    if (resource := _credential(request)) is None:
        raise _missing(request, "/federatedIdentityCredentials", "credential")
    return JSONResponse(_shown(resource))


async def list_credentials(request: Request) -> Response:
    """List the federated credentials of an identity."""
    return page(request, _rows(request, f"{_found(request).key}/", CREDENTIAL))


async def delete_credential(request: Request) -> Response:
    """Believe those tokens no longer."""
    fabric, resource = fabric_of(request), _credential(request)
    if resource is None:
        return Response(status_code=204)
    del fabric.state.resources[resource.key]
    fabric.changed()
    return Response()


def _rows(request: Request, inside: str, kind: str) -> list[dict[str, Any]]:
    found = fabric_of(request).state.resources.values()
    return [_shown(r) for r in found if r.key.startswith(inside) and r.type == kind]


def _found(request: Request) -> Resource:
    find_group(request)
    if (resource := _lookup(request)) is None:
        raise _missing(request, "", "name")
    return resource


def _missing(request: Request, kind: str, name: str) -> ArmError:
    names = request.path_params
    return resource_not_found(f"{IDENTITY}{kind}/{names[name]}", names["group"])


def _lookup(request: Request) -> Resource | None:
    names = request.path_params
    key = f"{group_id(names['subscription'], names['group'])}{PROVIDER}/{names['name']}".lower()
    return fabric_of(request).state.resources.get(key)


def _credential(request: Request) -> Resource | None:
    names = request.path_params
    key = f"{group_id(names['subscription'], names['group'])}{PROVIDER}/{names['name']}"
    key += f"/federatedIdentityCredentials/{names['credential']}"
    return fabric_of(request).state.resources.get(key.lower())


def _shown(resource: Resource) -> dict[str, Any]:
    shown: dict[str, Any] = {"id": resource.id, "name": resource.name, "type": resource.type}
    if resource.type == IDENTITY:
        shown["location"] = resource.location
    return shown | resource.body
