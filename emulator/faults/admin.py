"""What Azure does of its own accord, at a caller's wish: `/_emulator/...`, loopback only."""

from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.arm.front_door import fabric_of, read_json, read_order
from emulator.arm.views import power
from emulator.compute import evictions, scale_sets
from emulator.compute.rules.scale_set_rules import LARGEST_SET
from emulator.core.errors import ArmError, invalid, marked_for_deletion, refuse_unknown
from emulator.core.state import InstanceRow, ScaleSetRow
from emulator.fabric import Fabric
from emulator.faults import planted
from emulator.faults.vm_requests import find_vm
from emulator.machines import processes


async def capacity(request: Request) -> Response:
    """Say how many more instances of a size a region can allocate; null for any number.

    Only allocations count down from it; what is deleted or evicted does not come back.
    """
    fabric = fabric_of(request)
    body = await read_order(request, "region", "vm_size", "available")
    region, size = body.get("region"), body.get("vm_size")
    if not (region and size and isinstance(region, str) and isinstance(size, str)):
        raise invalid("'region' and 'vm_size' must name a region and a size.")
    key = f"{region}/{size}".lower()
    count, state = body.get("available"), fabric.state
    if count is not None and not (isinstance(count, int) and count >= 0):
        raise invalid(f"'available' must be a number of instances or null, not {count!r}.")
    limits = {k: v for k, v in {**state.globals.capacity, key: count}.items() if v is not None}
    state.change(state.globals, capacity=limits)
    fabric.changed()
    return JSONResponse({"capacity": limits})


async def evict(request: Request) -> Response:
    """Evict ``vm``, or an instance of a scale set, with the usual notice or (false) without.

    Without notice the VM is dead when the answer arrives. With ``lingers`` it stays in the
    list, stopped, as an Azure fault of 2024 had it for weeks.
    """
    fabric = fabric_of(request)
    body = await read_order(request, "vm", "scale_set", "instance_id", "notice", "lingers")
    notice, lingers = body.get("notice", True), body.get("lingers", False)
    if not isinstance(notice, bool) or not isinstance(lingers, bool):
        raise invalid("'notice' and 'lingers' are true or false; --notice-seconds says how long.")
    scale_set, instance = find_vm(fabric, body["vm"]) if "vm" in body else _find(fabric, body)
    if notice:
        seconds = fabric.settings.notice_seconds
        evictions.announce(fabric.state, instance, fabric.now(), seconds, lingers=lingers)
        fabric.changed()
    else:
        evictions.strike(fabric.state, instance, fabric.now(), lingers=lingers)
        fabric.changed()
        await fabric.step()
    return JSONResponse({"evicted": scale_set.vm_name(instance)})


async def restore(request: Request) -> Response:
    """Bring ``count`` evicted instances of a scale set back, as try and restore does."""
    fabric, body = fabric_of(request), await read_order(request, "scale_set", "count")
    name, count = str(body.get("scale_set", "")).lower(), body.get("count", 1)
    matches = [s for s in fabric.state.scale_sets.values() if s.name.lower() == name]
    if not matches or not isinstance(count, int) or not 1 <= count <= LARGEST_SET:
        raise invalid(f"'scale_set' must name one that exists, 'count' be 1 to {LARGEST_SET}.")
    if matches[0].provisioning_state == "Deleting":
        raise marked_for_deletion("restore", matches[0].name)
    scale_sets.check_room_in_quota(fabric, matches[0], count)
    scale_sets.grow(fabric, matches[0], count, "restore")
    fabric.changed()
    return JSONResponse({"restored": count})


async def plant_fault(request: Request) -> Response:
    """Plant a fault; `emulator/faults/planted.py` tells which there are."""
    fabric, body = fabric_of(request), await read_json(request)
    fault = planted.plant(fabric.state, body, fabric.now())
    fabric.changed()
    return JSONResponse(asdict(fault), status_code=201)


async def list_faults(request: Request) -> Response:
    """Every planted fault, worn out ones too, with how often each has struck."""
    rows = fabric_of(request).state.faults.values()
    return JSONResponse({"value": [asdict(fault) for fault in rows]})


async def clear_faults(request: Request) -> Response:
    """Forget the fault ?id=, or all of them."""
    fabric = fabric_of(request)
    refuse_unknown(request.query_params, ("id",), "parameter")
    cleared = planted.clear(fabric.state, request.query_params.get("id", ""), fabric.now())
    fabric.changed()
    return JSONResponse({"cleared": cleared})


async def virtual_machines(request: Request) -> Response:
    """Every VM there is, with its process and folder."""
    fabric = fabric_of(request)
    return JSONResponse({"value": [_row(fabric, s, i) for s, i in fabric.instances()]})


def _find(fabric: Fabric, body: dict[str, Any]) -> tuple[ScaleSetRow, InstanceRow]:
    name, number = str(body.get("scale_set", "")), str(body.get("instance_id", ""))
    for scale_set, instance in fabric.instances():
        if scale_set.name.lower() == name.lower() and instance.instance_id == number:
            return scale_set, instance
    raise ArmError(
        404,
        "NotFound",
        f"There is no instance '{number}' of a scale set '{name}'. Name a VM by 'vm', or by "
        "'scale_set' and 'instance_id'; GET /_emulator/virtualMachines lists them.",
    )


def _row(fabric: Fabric, scale_set: ScaleSetRow, instance: InstanceRow) -> dict[str, Any]:
    folder = fabric.folder(instance)
    state = power(fabric, instance)
    return {
        "scale_set": scale_set.name,
        "instance_id": instance.instance_id,
        "name": scale_set.vm_name(instance),
        "vm_id": instance.vm_id,
        "address": instance.address,
        "region": scale_set.location,
        "vm_size": scale_set.vm_size,
        "state": state or "creating",
        "pid": processes.init_pid(folder) if state == "running" else None,
        "folder": str(folder),
        "metadata_url": fabric.metadata_url(instance),
    }
