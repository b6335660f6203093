"""The Instance Metadata Service, one behind each VM's own address /vm/TOKEN."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator import evictions
from emulator.errors import ArmError, invalid
from emulator.fabric import Fabric
from emulator.front_door import fabric_of, read_json
from emulator.state import Instance, ScaleSet

NEWEST = ("2021-12-13", "2021-11-15", "2021-02-01")


async def instance(request: Request) -> Response:
    """Who this VM is."""
    scale_set, vm = _find(request)
    return JSONResponse({"compute": _compute(scale_set, vm), "network": _network(vm)})


async def scheduled_events(request: Request) -> Response:
    """What is about to happen to this VM."""
    return JSONResponse(evictions.document(*_find(request)))


async def start_requests(request: Request) -> Response:
    """The VM agrees to its events: they happen now."""
    fabric = fabric_of(request)
    _, vm = _find(request)
    wanted = (await read_json(request)).get("StartRequests")
    if not isinstance(wanted, list) or not all(isinstance(r, dict) for r in wanted) or not wanted:
        raise invalid("StartRequests must be a list of objects with an EventId.", "BadRequest")
    agreed = [evictions.acknowledge(vm, str(r.get("EventId", ""))) for r in wanted]
    if not all(agreed):
        raise invalid("There is no event with this EventId.", "BadRequest")
    fabric.changed()
    return Response()


def _find(request: Request) -> tuple[ScaleSet, Instance]:
    fabric: Fabric = fabric_of(request)
    token = request.path_params["token"]
    found = fabric.find(lambda i: i.token == token)
    if found is None:
        raise ArmError(404, "NotFound", "This VM is gone.")
    if request.headers.get("metadata", "").lower() != "true":
        raise invalid("Bad request. Required metadata header not specified.", "BadRequest")
    if not request.query_params.get("api-version"):
        versions = ", ".join(NEWEST)
        raise invalid(f"Bad request. api-version is required; newest are {versions}.", "BadRequest")
    return found


def _compute(scale_set: ScaleSet, vm: Instance) -> dict[str, Any]:
    tags = scale_set.model.get("tags") or {}
    profile = scale_set.profile
    return {
        "azEnvironment": "AzurePublicCloud",
        "vmId": vm.vm_id,
        "name": scale_set.vm_name(vm),
        "vmScaleSetName": scale_set.name,
        "location": scale_set.location,
        "vmSize": scale_set.vm_size,
        "resourceGroupName": scale_set.group,
        "subscriptionId": scale_set.subscription,
        "resourceId": f"{scale_set.id}/virtualMachines/{vm.instance_id}",
        "osType": "Linux",
        "zone": "",
        "placementGroupId": scale_set.unique_id,
        "platformFaultDomain": "0",
        "platformUpdateDomain": "0",
        "priority": profile.get("priority", "Regular"),
        "evictionPolicy": profile.get("evictionPolicy", ""),
        "tags": ";".join(f"{k}:{v}" for k, v in tags.items()),
        "tagsList": [{"name": k, "value": v} for k, v in tags.items()],
    }


def _network(vm: Instance) -> dict[str, Any]:
    addresses = [{"privateIpAddress": vm.address, "publicIpAddress": ""}]
    subnet = [{"address": vm.address.rpartition(".")[0] + ".0", "prefix": "24"}]
    return {
        "interface": [
            {
                "ipv4": {"ipAddress": addresses, "subnet": subnet},
                "ipv6": {"ipAddress": []},
                "macAddress": "000D3A" + vm.vm_id.replace("-", "")[:6].upper(),
            }
        ]
    }
