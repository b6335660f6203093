"""Resource groups."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator import operations
from emulator.errors import ArmError, group_not_found, invalid
from emulator.front_door import fabric_of, page, read_json
from emulator.state import ResourceGroup, group_id
from emulator.views import group_body


async def put(request: Request) -> Response:
    """Create or update one."""
    fabric, names = fabric_of(request), request.path_params
    body = await read_json(request)
    if not body.get("location"):
        raise invalid("The location property is required for this definition.", "LocationRequired")
    old = _lookup(request)
    if old and old.deleting:
        raise _being_deleted(old)
    group = old or ResourceGroup(
        subscription=names["subscription"],
        name=names["group"],
        location=str(body["location"]).lower().replace(" ", ""),
        tags={},
    )
    group.tags = body.get("tags") or {}
    fabric.state.groups[group.key] = group
    fabric.changed()
    return JSONResponse(group_body(group), status_code=200 if old else 201)


async def get(request: Request) -> Response:
    """Show one."""
    return JSONResponse(group_body(_found(request)))


async def head(request: Request) -> Response:
    """Say whether there is one."""
    return Response(status_code=204 if _lookup(request) else 404)


async def list_all(request: Request) -> Response:
    """List those of the subscription."""
    wanted = request.path_params["subscription"].lower()
    rows = fabric_of(request).state.groups.values()
    return page(request, [group_body(g) for g in rows if g.subscription.lower() == wanted])


async def delete(request: Request) -> Response:
    """Begin deleting one with everything in it."""
    fabric, group = fabric_of(request), _found(request)
    running = fabric.operations(group.key, "delete_group")
    if not running:
        group.deleting = True
        for scale_set in fabric.state.scale_sets.values():
            if scale_set.key.startswith(group.key + "/"):
                operations.preempt(fabric, scale_set.key)
                scale_set.provisioning_state = "Deleting"
        running = [
            operations.begin(
                fabric,
                "delete_group",
                group.key,
                subscription=group.subscription,
                location=group.location,
                seconds=fabric.settings.delete_seconds,
            )
        ]
        fabric.changed()
    return Response(status_code=202, headers=operations.headers(request, running[0]))


def find_group(request: Request) -> ResourceGroup:
    """The resource group that the path names; ArmError if it is gone, or going and written to."""
    group = _found(request)
    if group.deleting and request.method == "PUT":
        raise _being_deleted(group)
    return group


def _found(request: Request) -> ResourceGroup:
    if (group := _lookup(request)) is None:
        raise group_not_found(request.path_params["group"])
    return group


def _lookup(request: Request) -> ResourceGroup | None:
    names = request.path_params
    key = group_id(names["subscription"], names["group"]).lower()
    return fabric_of(request).state.groups.get(key)


def _being_deleted(group: ResourceGroup) -> ArmError:
    return ArmError(
        409,
        "ResourceGroupBeingDeleted",
        f"The resource group '{group.name}' is in deprovisioning state and cannot perform this "
        "operation.",
    )
