"""Resource groups."""

from dataclasses import replace

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.access import enforcement
from emulator.arm import operations
from emulator.arm.front_door import fabric_of, page, read_json
from emulator.arm.odata import narrowed
from emulator.arm.tags import tags_of
from emulator.arm.views import group_body
from emulator.core.catalog import catalog, region_name
from emulator.core.errors import ArmError, group_not_found, invalid
from emulator.core.state import ResourceGroup, group_id

MARKS = "-.()_"
LONGEST_NAME = 90


async def put(request: Request) -> Response:
    """Create or update one."""
    fabric, names = fabric_of(request), request.path_params
    body = await read_json(request)
    if not body.get("location"):
        raise invalid("The location property is required for this definition.", "LocationRequired")
    old = _lookup(request)
    if old and old.deleting:
        raise _being_deleted(old)
    location, regions = region_name(body["location"]), catalog().locations
    if location not in regions:
        raise invalid(
            f"The provided location '{location}' is not available for resource group. List of "
            f"available regions is '{','.join(sorted(regions))}'.",
            "LocationNotAvailableForResourceGroup",
        )
    group = old or ResourceGroup(names["subscription"], names["group"], location, {})
    if location != group.location:
        raise ArmError(
            409,
            "InvalidResourceGroupLocation",
            f"Invalid resource group location '{location}'. The Resource group already exists "
            f"in location '{group.location}'.",
        )
    group = fabric.state.put(replace(group, tags=tags_of(body)))
    fabric.changed()
    return JSONResponse(group_body(group), status_code=200 if old else 201)


async def patch(request: Request) -> Response:
    """Put other tags on one."""
    fabric, body = fabric_of(request), await read_json(request)
    group = find_group(request)
    if "tags" in body:
        group = fabric.state.change(group, tags=tags_of(body))
        fabric.changed()
    return JSONResponse(group_body(group))


async def get(request: Request) -> Response:
    """Show one."""
    return JSONResponse(group_body(_find_group(request)))


async def list_all(request: Request) -> Response:
    """List those of the subscription."""
    subscription = request.path_params["subscription"].lower()
    fabric, caller = fabric_of(request), request.scope["caller"]
    rows = [g for g in fabric.state.groups.values() if enforcement.sees(fabric, caller, g.key)]
    bodies = [group_body(g) for g in rows if g.subscription.lower() == subscription]
    return page(request, narrowed(request, bodies))


async def delete(request: Request) -> Response:
    """Begin deleting one with everything in it."""
    fabric, group = fabric_of(request), _find_group(request)
    running = fabric.operations(group.key, "delete_group")
    if not running:
        fabric.state.change(group, deleting=True)
        for scale_set in fabric.state.scale_sets.values():
            if scale_set.key.startswith(group.key + "/"):
                operations.preempt(fabric, scale_set.key, "put", "restore")
        seconds = fabric.settings.delete_seconds
        running = [operations.begin_operation(fabric, "delete_group", group, seconds=seconds)]
        fabric.changed()
    return Response(status_code=202, headers=operations.headers(request, running[0]))


def find_group(request: Request) -> ResourceGroup:
    """Return the resource group in the path, or raise ArmError; none that goes is written to."""
    group = _find_group(request)
    if group.deleting and request.method in ("PUT", "PATCH"):
        raise _being_deleted(group)
    return group


def list_start(request: Request) -> str:
    """Return how the keys start of all that is in the group, or else subscription, of a path."""
    if "group" in request.path_params:
        return find_group(request).key + "/"
    return f"/subscriptions/{request.path_params['subscription']}/".lower()


def _find_group(request: Request) -> ResourceGroup:
    if (group := _lookup(request)) is None:
        raise group_not_found(request.path_params["group"])
    return group


def _lookup(request: Request) -> ResourceGroup | None:
    names = request.path_params
    _check_name(names["group"])
    key = group_id(names["subscription"], names["group"]).lower()
    return fabric_of(request).state.groups.get(key)


def _check_name(name: str) -> None:
    odd = (c for c in name if not (c.isalpha() or c.isdecimal() or c in MARKS))
    wrong, why = "".join(dict.fromkeys(odd)), ""
    if wrong:
        why = (
            f"has these invalid characters: '{wrong}'. The name can only be a letter, digit, '-', "
            "'.', '(', ')' or '_'."
        )
    elif name.endswith("."):
        why = "ends with '.', which a name may not."
    elif len(name) > LONGEST_NAME:
        why = f"is longer than {LONGEST_NAME} characters."
    if why:
        raise invalid(f"The provided resource group name '{name}' {why}", "InvalidResourceGroup")


def _being_deleted(group: ResourceGroup) -> ArmError:
    return ArmError(
        409,
        "ResourceGroupBeingDeleted",
        f"The resource group '{group.name}' is in deprovisioning state and cannot perform this "
        "operation.",
    )
