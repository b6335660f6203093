"""Requests for the types in `kinds`, and the list of everything there is."""

import copy

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.arm.front_door import check_conditions, fabric_of, page, read_json
from emulator.arm.odata import narrowed
from emulator.arm.resource_groups import find_group, list_start
from emulator.arm.views import scale_set_body
from emulator.core.errors import ArmError
from emulator.core.state import ResourceRow
from emulator.core.timestamps import timestamp
from emulator.resources.kinds import Json, ResourceKind
from emulator.resources.resource_ids import ResourcePath, below
from emulator.resources.store import delete as drop
from emulator.resources.store import listed, lookup, not_found, resource_as_json
from emulator.resources.store import put as store
from emulator.resources.table import find


async def put(request: Request) -> Response:
    """Create or replace one."""
    fabric = fabric_of(request)
    find_group(request)
    path, kind = _named_resource(request)
    body = await read_json(request)
    old = lookup(fabric, path)
    check_conditions(request, *([old.etag] if old else []))
    resource = store(fabric, path, kind, body)
    fabric.changed()
    return JSONResponse(resource_as_json(resource), status_code=200 if old else kind.created)


async def get(request: Request) -> Response:
    """Show one, or all that are where the path ends."""
    fabric = fabric_of(request)
    find_group(request)
    path, kind = _parsed(request)
    if path.lists:
        if (above := path.parent) and lookup(fabric, above) is None:
            raise not_found(above)
        return page(
            request, [resource_as_json(resource) for resource in listed(fabric, path, kind)]
        )
    return JSONResponse(resource_as_json(_find_resource(request)))


async def patch(request: Request) -> Response:
    """Merge the body into one: objects member by member, all else is replaced."""
    fabric = fabric_of(request)
    old = _find_resource(request)
    path, kind = _named_resource(request)
    check_conditions(request, old.etag)
    body = await read_json(request)
    resource = store(fabric, path, kind, merged(old.body, body))
    fabric.changed()
    return JSONResponse(resource_as_json(resource))


async def delete(request: Request) -> Response:
    """Delete one with its parts; 204 where there is none."""
    fabric = fabric_of(request)
    find_group(request)
    path, _ = _named_resource(request)
    resource = lookup(fabric, path)
    if resource is None:
        return Response(status_code=204)
    check_conditions(request, resource.etag)
    drop(fabric, resource)
    fabric.changed()
    return Response(status_code=200)


async def post(request: Request) -> Response:
    """Carry out an action on one resource, such as listKeys."""
    fabric, names = fabric_of(request), request.path_params
    target, _, action = names["rest"].rpartition("/")
    path = below(names["subscription"], names["group"], target)
    kind = find(path, request.query_params["api-version"])
    find_group(request)
    if (resource := lookup(fabric, path)) is None:
        raise not_found(path)
    if (act := kind.actions.get(action.lower())) is None:
        message = f"The emulator has no action '{action}' on {kind.type}."
        raise ArmError(404, "NotFound", message)
    return JSONResponse(act(fabric, resource))


async def list_type(request: Request) -> Response:
    """List the resources of one type in the subscription."""
    fabric, names = fabric_of(request), request.path_params
    path = below(names["subscription"], "", names["rest"])
    kind = find(path, request.query_params["api-version"])
    if not path.lists or len(path.types) > 1:
        raise not_found(path)
    start, rows = list_start(request), fabric.state.resources.values()
    matches = [r for r in rows if r.key.startswith(start) and r.type == kind.type]
    return page(request, [resource_as_json(resource) for resource in matches])


async def list_all(request: Request) -> Response:
    """List every resource of the group or subscription, without its properties."""
    state, start = fabric_of(request).state, list_start(request)
    full = [(scale_set_body(s), s.created_at) for s in state.visible(start)]
    resources = (r for r in state.resources.values() if r.tracked and r.key.startswith(start))
    full += [({"location": r.location} | resource_as_json(r), r.created_at) for r in resources]
    extra = request.query_params.get("$expand", "").split(",")
    rows = [_row(body, created_at, extra) for body, created_at in full]
    return page(request, narrowed(request, rows))


def merged(old: Json, changes: Json) -> Json:
    """Return a copy of ``old`` with the changes merged in."""
    result = copy.deepcopy(old)
    for name, value in changes.items():
        before = result.get(name)
        is_nested = isinstance(before, dict) and isinstance(value, dict) and name != "tags"
        result[name] = merged(before, value) if is_nested else value  # type: ignore[arg-type] # both are dicts
    return result


def _parsed(request: Request) -> tuple[ResourcePath, ResourceKind]:
    names = request.path_params
    path = below(names["subscription"], names["group"], names["rest"])
    return path, find(path, request.query_params["api-version"])


def _named_resource(request: Request) -> tuple[ResourcePath, ResourceKind]:
    path, kind = _parsed(request)
    if path.lists:
        raise ArmError(
            405, "MethodNotAllowed", f"{request.method} needs the name of a resource: {path.id}"
        )
    return path, kind


def _find_resource(request: Request) -> ResourceRow:
    find_group(request)
    path, _ = _named_resource(request)
    if (resource := lookup(fabric_of(request), path)) is None:
        raise not_found(path)
    return resource


def _row(body: Json, created_at: float, extra: list[str]) -> Json:
    """Return a resource without its properties, with the members that $expand names."""
    created = timestamp(created_at)
    state = (body.get("properties") or {}).get("provisioningState", "Succeeded")
    optional = {"createdTime": created, "changedTime": created, "provisioningState": state}
    row = {k: v for k, v in body.items() if k not in ("properties", "etag")}
    return row | {name: value for name, value in optional.items() if name in extra}
