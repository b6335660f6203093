"""Resources as ARM shows them."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from emulator.fabric import Fabric
from emulator.state import Instance, ResourceGroup, ScaleSet, group_id

POWER = {
    "running": "VM running",
    "stopped": "VM stopped",
    "deallocated": "VM deallocated",
    "starting": "VM starting",
}


def group_body(group: ResourceGroup) -> dict[str, Any]:
    """A resource group."""
    return {
        "id": group_id(group.subscription, group.name),
        "name": group.name,
        "type": "Microsoft.Resources/resourceGroups",
        "location": group.location,
        "tags": group.tags,
        "properties": {"provisioningState": "Deleting" if group.deleting else "Succeeded"},
    }


def scale_set_body(scale_set: ScaleSet) -> dict[str, Any]:
    """A scale set: its model with what Azure adds."""
    facts = {
        "provisioningState": scale_set.provisioning_state,
        "uniqueId": scale_set.unique_id,
        "timeCreated": _time(scale_set.created_at),
    }
    return {
        "id": scale_set.id,
        "name": scale_set.name,
        "type": "Microsoft.Compute/virtualMachineScaleSets",
        "etag": f'"{scale_set.etag}"',
        **scale_set.model,
        "properties": {**scale_set.model["properties"], **facts},
    }


def scale_set_view(scale_set: ScaleSet) -> dict[str, Any]:
    """The instance view of a scale set; the cause of a failed allocation is found here."""
    states = Counter(_provisioning(i).lower() for i in scale_set.instances.values())
    return {
        "virtualMachine": {
            "statusesSummary": [
                {"code": f"ProvisioningState/{state}", "count": n} for state, n in states.items()
            ]
        },
        "statuses": [_set_status(scale_set)],
    }


def instance_body(
    fabric: Fabric, scale_set: ScaleSet, instance: Instance, *, view: bool
) -> dict[str, Any]:
    """One VM of a scale set, with its instance view if asked for."""
    id_ = f"{scale_set.id}/virtualMachines/{instance.instance_id}"
    profile = scale_set.profile
    properties = {
        "latestModelApplied": True,
        "modelDefinitionApplied": "VirtualMachineScaleSet",
        "vmId": instance.vm_id,
        "provisioningState": _provisioning(instance),
        "hardwareProfile": {"vmSize": scale_set.vm_size},
        "storageProfile": profile.get("storageProfile", {}),
        "osProfile": {
            "computerName": _computer_name(scale_set, instance),
            "requireGuestProvisionSignal": True,
        },
        "networkProfile": {
            "networkInterfaces": [{"id": f"{id_}/networkInterfaces/primary"}],
        },
        "timeCreated": _time(instance.created_at),
    }
    if view:
        properties["instanceView"] = instance_view(fabric, instance)
    return {
        "id": id_,
        "name": scale_set.vm_name(instance),
        "instanceId": instance.instance_id,
        "type": "Microsoft.Compute/virtualMachineScaleSets/virtualMachines",
        "location": scale_set.location,
        "tags": scale_set.model.get("tags", {}),
        "sku": {k: v for k, v in scale_set.model["sku"].items() if k != "capacity"},
        "etag": f'"{scale_set.etag}"',
        "properties": properties,
    }


def instance_view(fabric: Fabric, instance: Instance) -> dict[str, Any]:
    """How one VM is doing."""
    provisioning = _provisioning(instance).lower()
    statuses = [_status(f"ProvisioningState/{provisioning}", f"Provisioning {provisioning}")]
    if state := power(fabric, instance):
        statuses.append(_status(f"PowerState/{state}", POWER[state]))
    return {"platformUpdateDomain": 0, "platformFaultDomain": 0, "statuses": statuses}


def power(fabric: Fabric, instance: Instance) -> str:
    """The power state: empty until there is a machine."""
    if instance.phase != "allocated":
        return "deallocated" if instance.phase == "deallocated" else ""
    if not instance.booted:
        return "starting"
    return "running" if fabric.running(instance) else "stopped"


def _provisioning(instance: Instance) -> str:
    if instance.doom:
        return "Deleting"
    return "Creating" if instance.phase == "creating" else "Succeeded"


def _set_status(scale_set: ScaleSet) -> dict[str, Any]:
    state = scale_set.provisioning_state.lower()
    if scale_set.error is None:
        return _status(f"ProvisioningState/{state}", f"Provisioning {state}")
    failed = _status(f"ProvisioningState/failed/{scale_set.error['code']}", "Provisioning failed")
    return failed | {"level": "Error", "message": scale_set.error["message"]}


def _status(code: str, text: str) -> dict[str, Any]:
    return {"code": code, "level": "Info", "displayStatus": text}


def _computer_name(scale_set: ScaleSet, instance: Instance) -> str:
    """The prefix with the instance id in base 36, six wide."""
    prefix = scale_set.profile.get("osProfile", {}).get("computerNamePrefix", scale_set.name)
    digits, number = "", int(instance.instance_id)
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return f"{prefix}{digits:0>6}".lower()


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()
