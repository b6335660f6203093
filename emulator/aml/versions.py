"""Environments and models: names with versions, each of which keeps what it was made of."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.aml import environments, models
from emulator.aml.assets import (
    PROVIDER,
    find_workspace,
    lookup,
    of_type,
    part_id,
    properties,
    user_error,
)
from emulator.aml.assets import shown as as_arm
from emulator.arm.front_door import fabric_of, page, read_json
from emulator.core.state import ResourceRow

KINDS = {"environments": environments, "models": models}


async def put(request: Request) -> Response:
    """Register a version; of an existing one what it is made of stays."""
    fabric, id_, kind = fabric_of(request), _id(request), KINDS[_kind(request)]
    wanted = (await read_json(request)).get("properties")
    if not isinstance(wanted, dict):
        raise user_error(400, "A version needs properties.")
    kind.check(fabric, find_workspace(request), wanted)
    old = lookup(fabric, id_)
    if old and properties(old)[kind.FIXED] != wanted[kind.FIXED]:
        raise user_error(
            409,
            f"{kind.NOUN} {_name(request)} is already registered with another definition. "
            "Register a new version.",
        )
    properties_ = (
        {"isArchived": False, "tags": {}, "properties": {}}
        | kind.DEFAULTS
        | {name: value for name, value in wanted.items() if value is not None}
        | {"provisioningState": "Succeeded"}
    )
    version = ResourceRow(
        id=old.id if old else id_,
        type=_type(request),
        location="",
        body={"properties": properties_},
        created_at=old.created_at if old else fabric.now(),
    )
    fabric.state.put(version)
    fabric.changed()
    return JSONResponse(as_arm(version), status_code=200 if old else 201)


async def get(request: Request) -> Response:
    """Show one version."""
    return JSONResponse(as_arm(_find(request)))


async def delete(request: Request) -> Response:
    """Forget one version."""
    fabric = fabric_of(request)
    if gone := lookup(fabric, _id(request)):
        fabric.state.remove(gone)
        fabric.changed()
    return Response(status_code=200 if gone else 204)


async def list_versions(request: Request) -> Response:
    """List the versions of one name, the newest first; archived ones only if asked for."""
    rows = [r for r in reversed(_versions(request)) if _wanted(request, r)]
    top = request.query_params.get("$top", "")
    return page(request, [as_arm(r) for r in rows[: int(top) if top.isdecimal() else None]])


async def list_all(request: Request) -> Response:
    """List the names."""
    rows = [r for r in _all(request) if _wanted(request, r)]
    last = {r.id.rsplit("/", 3)[1]: r for r in rows}
    return page(request, [_container(request, name) for name in last])


async def get_container(request: Request) -> Response:
    """Show a name without its versions."""
    name = request.path_params["name"]
    if not _versions(request):
        raise user_error(404, f"{KINDS[_kind(request)].NOUN} {name} is not found.")
    return JSONResponse(_container(request, name))


def _container(request: Request, name: str) -> dict[str, Any]:
    numbers = [r.name for r in _all(request) if f"/{name}/versions/".lower() in r.key]
    following = max([int(n) for n in numbers if n.isdecimal()], default=0) + 1
    return {
        "id": f"{find_workspace(request).id}/{_kind(request)}/{name}",
        "name": name,
        "type": f"{PROVIDER}/workspaces/{_kind(request)}",
        "properties": {
            "latestVersion": numbers[-1],
            "nextVersion": str(following),
            "isArchived": False,
            "tags": {},
            "properties": {},
        },
    }


def _find(request: Request) -> ResourceRow:
    if (found := lookup(fabric_of(request), _id(request))) is None:
        raise user_error(404, f"{KINDS[_kind(request)].NOUN} {_name(request)} is not found.")
    return found


def _all(request: Request) -> list[ResourceRow]:
    return of_type(fabric_of(request), _type(request), find_workspace(request))


def _versions(request: Request) -> list[ResourceRow]:
    middle = f"/{_kind(request)}/{request.path_params['name']}/versions/".lower()
    return [r for r in _all(request) if middle in r.key]


def _wanted(request: Request, version: ResourceRow) -> bool:
    view = request.query_params.get("listViewType", "ActiveOnly").lower()
    return view == "all" or bool(properties(version)["isArchived"]) is (view == "archivedonly")


def _kind(request: Request) -> str:
    """Return the kind in the path below the workspace: "environments" or "models"."""
    return request.url.path.split("/")[9].lower()


def _type(request: Request) -> str:
    return f"{PROVIDER}/workspaces/{_kind(request)}/versions"


def _id(request: Request) -> str:
    return part_id(request, _kind(request) + "/{name}/versions/{version}")


def _name(request: Request) -> str:
    return f"{request.path_params['name']}:{request.path_params['version']}"
