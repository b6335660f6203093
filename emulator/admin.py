"""What Azure does of its own accord, at a caller's wish: `/_emulator/...`, loopback only."""

from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator import evictions, faults, processes, scale_sets
from emulator.errors import ArmError, invalid
from emulator.fabric import Fabric
from emulator.front_door import fabric_of, read_json
from emulator.state import Instance, ScaleSet
from emulator.views import power


async def capacity(request: Request) -> Response:
    """Say how many more instances can be allocated in a place; null for any number.

    Only allocations count down from it; what is deleted or evicted does not come back.
    """
    fabric, body = fabric_of(request), await read_json(request)
    place = f"{body.get('region', '')}/{body.get('vm_size', '')}".lower()
    match body.get("available"):
        case None:
            fabric.state.capacity.pop(place, None)
        case int(count) if count >= 0:
            fabric.state.capacity[place] = count
        case other:
            raise invalid(f"'available' must be a number of instances or null, not {other!r}.")
    fabric.changed()
    return JSONResponse({"capacity": fabric.state.capacity})


async def evict(request: Request) -> Response:
    """Evict one instance, with the usual notice or (``notice`` false) out of the blue.

    Without notice the VM is dead when the answer arrives. With ``lingers`` it stays in the
    list, stopped, as an Azure fault of 2024 had it for weeks.
    """
    fabric, body = fabric_of(request), await read_json(request)
    scale_set, instance = _find(fabric, body)
    lingers = bool(body.get("lingers"))
    if body.get("notice", True):
        notice = fabric.settings.notice_seconds
        evictions.announce(scale_set, instance, fabric.now(), notice, lingers=lingers)
        fabric.changed()
    else:
        evictions.strike(scale_set, instance, fabric.now(), lingers=lingers)
        fabric.changed()
        await fabric.step()
    return JSONResponse({"evicted": scale_set.vm_name(instance)})


async def restore(request: Request) -> Response:
    """Bring ``count`` evicted instances of a scale set back, as try and restore does."""
    fabric, body = fabric_of(request), await read_json(request)
    name, count = str(body.get("scale_set", "")).lower(), body.get("count", 1)
    found = [s for s in fabric.state.scale_sets.values() if s.name.lower() == name]
    if not found or not isinstance(count, int) or count < 1:
        raise invalid("'scale_set' must name one that exists, 'count' be 1 or more.")
    scale_sets.restore(fabric, found[0], count)
    return JSONResponse({"restored": count})


async def plant_fault(request: Request) -> Response:
    """Plant a fault; `emulator/faults.py` tells which there are."""
    fabric, body = fabric_of(request), await read_json(request)
    fault = faults.plant(fabric.state, body, fabric.now())
    fabric.changed()
    return JSONResponse(asdict(fault), status_code=201)


async def list_faults(request: Request) -> Response:
    """Every planted fault, worn out ones too, with how often each has struck."""
    planted = fabric_of(request).state.faults.values()
    return JSONResponse({"value": [asdict(fault) for fault in planted]})


async def clear_faults(request: Request) -> Response:
    """Forget the fault ?id=, or all of them."""
    fabric = fabric_of(request)
    gone = faults.clear(fabric.state, request.query_params.get("id", ""), fabric.now())
    fabric.changed()
    return JSONResponse({"cleared": gone})


async def virtual_machines(request: Request) -> Response:
    """Every VM there is, with its process and folder."""
    fabric = fabric_of(request)
    return JSONResponse({"value": [_row(fabric, s, i) for s, i in fabric.instances()]})


def _find(fabric: Fabric, body: dict[str, Any]) -> tuple[ScaleSet, Instance]:
    name, number = str(body.get("scale_set", "")), str(body.get("instance_id", ""))
    for scale_set, instance in fabric.instances():
        if scale_set.name.lower() == name.lower() and instance.instance_id == number:
            return scale_set, instance
    raise ArmError(404, "NotFound", f"There is no instance '{number}' of a scale set '{name}'.")


def _row(fabric: Fabric, scale_set: ScaleSet, instance: Instance) -> dict[str, Any]:
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
