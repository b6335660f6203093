"""Microsoft.Compute/virtualMachines: the instances of Flexible scale sets."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.arm.front_door import fabric_of, page
from emulator.arm.resource_groups import find_group
from emulator.arm.views import instance_view, virtual_machine_body, wants
from emulator.compute import instances, scale_set_actions
from emulator.compute.instance_query import scale_set_filter
from emulator.compute.scale_set_actions import Handler
from emulator.core.errors import marked_for_deletion, resource_not_found
from emulator.core.state import InstanceRow, ScaleSetRow
from emulator.fabric import Fabric


async def list_in_group(request: Request) -> Response:
    """List those of one resource group, narrowed to one scale set by $filter."""
    group = find_group(request)
    return _listed(request, group.key + "/")


async def list_all(request: Request) -> Response:
    """List those of the subscription; statusOnly=true shows how they are doing, and no more."""
    return _listed(request, f"/subscriptions/{request.path_params['subscription']}/".lower())


async def get(request: Request) -> Response:
    """Show one."""
    scale_set, instance = find_vm(request)
    body = virtual_machine_body(
        fabric_of(request),
        scale_set,
        instance,
        view=wants(request, "instanceView"),
        user_data=wants(request, "userData"),
    )
    return JSONResponse(body)


async def view(request: Request) -> Response:
    """Show how one is doing."""
    return JSONResponse(instance_view(fabric_of(request), *find_vm(request)))


async def delete(request: Request) -> Response:
    """Begin deleting one; 204 when there is nothing to delete."""
    find_group(request)
    if (found := _lookup(request)) is None:
        return Response(status_code=204)
    scale_set, instance = found
    return instances.begin_deletion(request, scale_set, (instance.instance_id,))


async def simulate_eviction(request: Request) -> Response:
    """Announce the eviction of one; it goes when its notice is over, or when it says so."""
    return instances.evict(request, find_vm(request)[1])


def ordered(kind: str) -> Handler:
    """Return the handler of an order to one virtual machine."""

    async def handler(request: Request) -> Response:
        scale_set, instance = find_vm(request)
        if scale_set.provisioning_state == "Deleting":
            raise marked_for_deletion(kind, scale_set.name)
        return scale_set_actions.begin_alone(request, scale_set, kind, instance)

    return handler


def find_vm(request: Request) -> tuple[ScaleSetRow, InstanceRow]:
    """Return the virtual machine that the path names, or raise ArmError."""
    group = find_group(request)
    if (found := _lookup(request)) is None:
        path = f"Microsoft.Compute/virtualMachines/{request.path_params['vm']}"
        raise resource_not_found(path, group.name)
    return found


def _lookup(request: Request) -> tuple[ScaleSetRow, InstanceRow] | None:
    names = request.path_params
    start = f"/subscriptions/{names['subscription']}/resourcegroups/{names['group']}/".lower()
    wanted = names["vm"].lower()
    for scale_set in _flexible(fabric_of(request), start):
        for name, instance in scale_set.instances.items():
            if name.lower() == wanted:
                return scale_set, instance
    return None


def _listed(request: Request, start: str) -> Response:
    fabric, wanted = fabric_of(request), scale_set_filter(request)
    status_only = request.query_params.get("statusOnly", "").lower() == "true"
    expanded = status_only or wants(request, "instanceView")
    rows = [
        virtual_machine_body(fabric, s, i, view=expanded)
        for s in _flexible(fabric, start)
        if wanted in ("", s.key)
        for i in s.instances.values()
    ]
    return page(request, [_status_of(row) for row in rows] if status_only else rows)


def _status_of(row: dict[str, Any]) -> dict[str, Any]:
    properties = {"instanceView": row["properties"]["instanceView"]}
    return {k: row[k] for k in ("id", "name", "type", "location")} | {"properties": properties}


def _flexible(fabric: Fabric, start: str) -> list[ScaleSetRow]:
    sets = fabric.state.scale_sets.values()
    return [s for s in sets if s.flexible and s.key.startswith(start)]
