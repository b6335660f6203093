"""The VMs of a scale set: list, show, delete, evict."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.arm import operations
from emulator.arm.front_door import check_conditions, fabric_of, page
from emulator.arm.views import instance_body, instance_view, wants
from emulator.compute import evictions
from emulator.compute.instance_query import unsupported
from emulator.compute.scale_sets import find_scale_set, refused_of_flexible
from emulator.core.errors import ArmError, instance_not_found, invalid, marked_for_deletion
from emulator.core.state import InstanceRow, ScaleSetRow


async def list_all(request: Request) -> Response:
    """List them, with $expand=instanceView; no $filter is offered, and $select is ignored."""
    fabric, scale_set = fabric_of(request), find_scale_set(request)
    expanded = wants(request, "instanceView")
    if scale_set.flexible and expanded:
        raise refused_of_flexible("virtualMachines.GET", scale_set)
    if text := request.query_params.get("$filter", ""):
        raise unsupported(text)
    rows = scale_set.instances.values()
    return page(request, [instance_body(fabric, scale_set, i, view=expanded) for i in rows])


async def get(request: Request) -> Response:
    """Show one."""
    scale_set, instance = find_instance(request)
    body = instance_body(
        fabric_of(request),
        scale_set,
        instance,
        view=wants(request, "instanceView"),
        user_data=wants(request, "userData"),
    )
    return JSONResponse(body)


async def view(request: Request) -> Response:
    """Show how one is doing."""
    return JSONResponse(instance_view(fabric_of(request), *find_instance(request)))


async def delete(request: Request) -> Response:
    """Begin deleting one; 204 when there is nothing to delete."""
    scale_set = find_scale_set(request)
    instance = scale_set.instances.get(request.path_params["instance"])
    if instance is None:
        return Response(status_code=204)
    check_conditions(request, scale_set.etag, instance.etag)
    return begin_deletion(request, scale_set, (instance.instance_id,))


async def simulate_eviction(request: Request) -> Response:
    """Announce the eviction of one; it goes when its notice is over, or when it says so."""
    return evict(request, find_instance(request)[1])


def evict(request: Request, instance: InstanceRow) -> Response:
    """Announce the eviction of this one."""
    fabric = fabric_of(request)
    evictions.announce(fabric.state, instance, fabric.now(), fabric.settings.notice_seconds)
    fabric.changed()
    return Response(status_code=204)


def begin_deletion(request: Request, scale_set: ScaleSetRow, ids: tuple[str, ...]) -> Response:
    """Begin deleting some instances, at once with forceDeletion; the capacity falls with them."""
    fabric = fabric_of(request)
    if scale_set.provisioning_state == "Deleting":
        raise marked_for_deletion("Delete Virtual Machine Scale Set VMs", scale_set.name)
    force = request.query_params.get("forceDeletion", "false").lower() == "true"
    operation = operations.begin(
        fabric,
        "delete_instances",
        scale_set,
        seconds=0.0 if force else fabric.settings.delete_seconds,
        instance_ids=ids,
    )
    for name in ids:
        fabric.state.change(scale_set.instances[name], busy=operation.kind)
    fabric.changed()
    return Response(status_code=202, headers=operations.headers(request, operation))


def find_instance(request: Request) -> tuple[ScaleSetRow, InstanceRow]:
    """Return the instance that the path names, or raise ArmError."""
    scale_set = find_scale_set(request)
    name = request.path_params["instance"]
    if scale_set.flexible:
        name = next((n for n in scale_set.instances if n.lower() == name.lower()), name)
    elif not name.isdecimal():
        message = "Virtual Machine Scale Set VM instanceId must be a number."
        raise invalid(message, target="instanceId")
    if (instance := scale_set.instances.get(name)) is None:
        raise instance_not_found(name)
    return scale_set, instance


def not_active(name: str) -> ArmError:
    """Return the error for an order to an instance that does not exist."""
    message = (
        f"The provided instanceId {name} is not an active Virtual Machine Scale Set VM instanceId."
    )
    return invalid(message, target="instanceIds")
