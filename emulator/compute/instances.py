"""The VMs of a scale set: list, show, delete, evict.

A VM of a Flexible scale set has an address as a virtual machine too: {vm} in place of {instance}.
"""

from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.arm import operations
from emulator.arm.front_door import check_conditions, fabric_of, page
from emulator.arm.resource_groups import list_start
from emulator.arm.views import expanded, instance_body, instance_view, virtual_machine_body
from emulator.compute import evictions
from emulator.compute.scale_sets import find_scale_set, refused_of_flexible
from emulator.core.agenda import Machine
from emulator.core.errors import ArmError, invalid, marked_for_deletion, resource_not_found
from emulator.core.state import ScaleSetRow


async def list_all(request: Request) -> Response:
    """List them, with $expand=instanceView; no $filter is offered, and $select is ignored."""
    fabric, scale_set = fabric_of(request), find_scale_set(request)
    parts = expanded(request) & {"instanceview"}
    if scale_set.flexible and parts:
        raise refused_of_flexible("virtualMachines.GET", scale_set)
    if text := request.query_params.get("$filter", ""):
        raise unsupported_filter(text)
    rows = scale_set.instances.values()
    return page(request, [instance_body(fabric, scale_set, i, parts) for i in rows])


async def get(request: Request) -> Response:
    """Show one."""
    render = virtual_machine_body if "vm" in request.path_params else instance_body
    return JSONResponse(render(fabric_of(request), *find_instance(request), expanded(request)))


async def view(request: Request) -> Response:
    """Show the instance view of one."""
    return JSONResponse(instance_view(fabric_of(request), *find_instance(request)))


async def delete(request: Request) -> Response:
    """Begin deleting one; 204 when there is nothing to delete."""
    machine = _lookup(request)
    if machine is None:
        return Response(status_code=204)
    scale_set, instance = machine
    if "vm" not in request.path_params:
        check_conditions(request, scale_set.etag, instance.etag)
    return begin_deletion(request, scale_set, (instance.instance_id,))


async def simulate_eviction(request: Request) -> Response:
    """Announce the eviction of one; it goes when its notice is over, or when it says so."""
    fabric, (_, instance) = fabric_of(request), find_instance(request)
    evictions.announce(fabric.state, instance, fabric.now(), fabric.settings.notice_seconds)
    fabric.changed()
    return Response(status_code=204)


def begin_deletion(request: Request, scale_set: ScaleSetRow, ids: tuple[str, ...]) -> Response:
    """Begin deleting some instances, at once with forceDeletion; the capacity falls with them."""
    fabric = fabric_of(request)
    if scale_set.provisioning_state == "Deleting":
        raise marked_for_deletion("Delete Virtual Machine Scale Set VMs", scale_set.name)
    force = request.query_params.get("forceDeletion", "false").lower() == "true"
    seconds = 0.0 if force else fabric.settings.delete_seconds
    operation = operations.begin_operation(
        fabric, "delete_instances", scale_set, seconds=seconds, instance_ids=ids
    )
    for name in ids:
        fabric.state.change(scale_set.instances[name], busy=operation.kind)
    fabric.changed()
    return Response(status_code=202, headers=operations.headers(request, operation))


def find_instance(request: Request) -> Machine:
    """Return the VM that the path names, with its scale set, or raise ArmError."""
    if (machine := _lookup(request)) is not None:
        return machine
    names = request.path_params
    if "vm" in names:
        raise resource_not_found(f"Microsoft.Compute/virtualMachines/{names['vm']}", names["group"])
    if not (name := names["instance"]).isdecimal() and not find_scale_set(request).flexible:
        message = "Virtual Machine Scale Set VM instanceId must be a number."
        raise invalid(message, target="instanceId")
    message = f"The entity was not found: no virtual machine with instance id '{name}'."
    raise ArmError(404, "NotFound", message)


def virtual_machines(request: Request) -> Iterator[Machine]:
    """Iterate over the VMs of the Flexible scale sets of the group or subscription in the path."""
    start = list_start(request)
    for scale_set in list(fabric_of(request).state.scale_sets.values()):
        if scale_set.flexible and scale_set.key.startswith(start):
            for instance in scale_set.instances.values():
                yield scale_set, instance


def unsupported_filter(text: str) -> Exception:
    """Return the error for an unsupported $filter."""
    return invalid(f"The filter '{text[:200]}' is not supported.", "BadRequest", "$filter")


def _lookup(request: Request) -> Machine | None:
    names = request.path_params
    if "vm" in names:
        name, rows = names["vm"], virtual_machines(request)
    else:
        scale_set, name = find_scale_set(request), names["instance"]
        if (exact := scale_set.instances.get(name)) or not scale_set.flexible:
            return (scale_set, exact) if exact else None
        rows = ((scale_set, instance) for instance in scale_set.instances.values())
    return next((f for f in rows if f[1].instance_id.lower() == name.lower()), None)
