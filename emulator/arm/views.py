"""Resources as ARM shows them."""

from collections import Counter
from collections.abc import Collection
from typing import Any

from starlette.requests import Request

from emulator.compute import filled_in
from emulator.core.state import InstanceRow, ResourceGroup, ScaleSetRow, group_id
from emulator.core.timestamps import timestamp
from emulator.fabric import Fabric
from emulator.machines import processes

AGENT = "2.9.1.1"  # of Azure's Linux agent; made up
ON_THE_WAY = {"deallocate": "deallocating", "powerOff": "stopping", "start": "starting"}


def expanded(request: Request) -> set[str]:
    """Return the parts of a resource that $expand names, in lower case."""
    return {name.strip() for name in request.query_params.get("$expand", "").lower().split(",")}


def group_body(group: ResourceGroup) -> dict[str, Any]:
    """Return a resource group as ARM shows it."""
    return {
        "id": group_id(group.subscription, group.name),
        "name": group.name,
        "type": "Microsoft.Resources/resourceGroups",
        "location": group.location,
        "tags": group.tags,
        "properties": {"provisioningState": "Deleting" if group.deleting else "Succeeded"},
    }


def scale_set_body(scale_set: ScaleSetRow, expand: Collection[str] = ()) -> dict[str, Any]:
    """Return a scale set as ARM shows it: its model with what Azure adds."""
    facts = {
        "provisioningState": scale_set.provisioning_state,
        "uniqueId": scale_set.unique_id,
        "timeCreated": timestamp(scale_set.created_at),
    }
    properties = {**scale_set.model["properties"], **facts}
    if scale_set.profile:
        profile = filled_in.profile(scale_set.profile)
        if "userdata" not in expand:
            profile.pop("userData", None)
        properties["virtualMachineProfile"] = profile
    model = dict(scale_set.model)
    if not scale_set.mixed_size:
        model["sku"] = {"tier": "Standard", **model["sku"]}
    if scale_set.flexible and not scale_set.profile:
        del model["sku"]  # nothing is known of its VMs
    return {
        "id": scale_set.id,
        "name": scale_set.name,
        "type": "Microsoft.Compute/virtualMachineScaleSets",
        "etag": f'"{scale_set.etag}"',
        **model,
        "properties": properties,
    }


def scale_set_view(scale_set: ScaleSetRow) -> dict[str, Any]:
    """Return the instance view of a scale set, with the cause of a failed allocation."""
    states = Counter(provisioning(i).lower() for i in scale_set.instances.values())
    rows = [{"code": f"ProvisioningState/{name}", "count": n} for name, n in states.items()]
    state = scale_set.provisioning_state.lower()
    status = _status(f"ProvisioningState/{state}", f"Provisioning {state}")
    if scale_set.error and state == "failed":
        status = _failed(scale_set.error)
    return {"virtualMachine": {"statusesSummary": rows}, "statuses": [status]}


def instance_body(
    fabric: Fabric, scale_set: ScaleSetRow, instance: InstanceRow, expand: Collection[str]
) -> dict[str, Any]:
    """Return one VM of a scale set."""
    properties = {
        "latestModelApplied": instance.applied == scale_set.version,
        "modelDefinitionApplied": "VirtualMachineScaleSet",
        **_machine(scale_set, instance),
    }
    if cards := filled_in.cards(scale_set.profile):
        properties["networkProfileConfiguration"] = {filled_in.CARDS: cards}
    return {
        "id": f"{scale_set.id}/virtualMachines/{instance.instance_id}",
        "name": scale_set.vm_name(instance),
        "instanceId": instance.instance_id,
        "type": "Microsoft.Compute/virtualMachineScaleSets/virtualMachines",
        "location": scale_set.location,
        **_around(scale_set, instance),
        "sku": {"name": scale_set.vm_size, "tier": scale_set.model["sku"].get("tier", "Standard")},
        "properties": properties | _expanded(fabric, scale_set, instance, expand),
    }


def virtual_machine_body(
    fabric: Fabric, scale_set: ScaleSetRow, instance: InstanceRow, expand: Collection[str]
) -> dict[str, Any]:
    """Return one VM of a Flexible scale set, as the virtual machine that it is."""
    properties = {"virtualMachineScaleSet": {"id": scale_set.id}, **_machine(scale_set, instance)}
    properties["priority"] = "Spot" if scale_set.spot else "Regular"
    if scale_set.spot:
        properties["evictionPolicy"] = scale_set.profile.get("evictionPolicy") or "Deallocate"
        properties["billingProfile"] = scale_set.profile.get("billingProfile") or {"maxPrice": -1}
    return {
        "id": scale_set.vm_resource_id(instance),
        "name": instance.instance_id,
        "type": "Microsoft.Compute/virtualMachines",
        "location": scale_set.location,
        **_around(scale_set, instance),
        "properties": properties | _expanded(fabric, scale_set, instance, expand),
    }


def instance_view(fabric: Fabric, scale_set: ScaleSetRow, instance: InstanceRow) -> dict[str, Any]:
    """Return the view of one VM, as in VirtualMachine_Get_InstanceView of Azure's specs."""
    code = provisioning(instance).lower()
    status = _status(f"ProvisioningState/{code}", f"Provisioning {code}")
    if instance.error and code == "failed":
        status = _failed(instance.error)
    statuses = [status | {"time": timestamp(instance.created_at)}]
    view = {"platformUpdateDomain": 0, "platformFaultDomain": 0, "statuses": statuses}
    state = power(fabric, instance)
    if not state:
        return view
    statuses.append(_status(f"PowerState/{state}", f"VM {state}"))
    storage = filled_in.storage(scale_set, instance)
    names = [disk["name"] for disk in (storage["osDisk"], *storage["dataDisks"])]
    view["disks"] = [{"name": name, "statuses": [status]} for name in names]
    if "diagnosticsProfile" in scale_set.profile:
        view["bootDiagnostics"] = {}  # managed: no addresses of blobs
    if state != "running":
        return view
    return view | {
        "computerName": scale_set.computer_name(instance),
        "hyperVGeneration": "V2",
        "vmAgent": _agent(instance),
    }


def power(fabric: Fabric, instance: InstanceRow) -> str:
    """Return the power state; empty until there is a machine."""
    if instance.phase in ("creating", "failed"):
        return ""
    if instance.busy in ON_THE_WAY:
        return ON_THE_WAY[instance.busy]
    if instance.phase == "deallocated":
        return "deallocated"
    if instance.stopped:
        return "stopped"
    if not instance.booted:
        return "starting"
    is_up = fabric.running(instance) or processes.crashed(fabric.folder(instance))
    return "running" if is_up else "stopped"


def provisioning(instance: InstanceRow) -> str:
    """Return the provisioning state of one VM."""
    if instance.busy == "delete_instances" or instance.doom in ("evicted", "deleted", "surplus"):
        return "Deleting"
    if instance.phase == "creating":
        return "Creating"
    if instance.busy:
        return "Updating"
    return "Failed" if instance.error else "Succeeded"


def _machine(scale_set: ScaleSetRow, instance: InstanceRow) -> dict[str, Any]:
    profile = scale_set.profile
    name = (filled_in.cards(profile) or [{}])[0].get("name") or "primary"
    card = f"{scale_set.vm_resource_id(instance)}/networkInterfaces/{name}"
    extra = {k: profile[k] for k in ("diagnosticsProfile", "securityProfile") if profile.get(k)}
    return {
        "vmId": instance.vm_id,
        "provisioningState": provisioning(instance),
        "hardwareProfile": {"vmSize": scale_set.vm_size},
        "storageProfile": filled_in.storage(scale_set, instance),
        "osProfile": filled_in.system(profile, scale_set.computer_name(instance)),
        "networkProfile": {"networkInterfaces": [{"id": card}]},
        "timeCreated": timestamp(instance.created_at),
        **extra,
    }


def _around(scale_set: ScaleSetRow, instance: InstanceRow) -> dict[str, Any]:
    zones = {"zones": [instance.zone]} if instance.zone else {}
    etag = f'"{scale_set.etag}.{instance.etag}"'
    identity = {k: v for k, v in scale_set.model.items() if k == "identity"}
    return {"tags": scale_set.model.get("tags", {}), "etag": etag, **identity, **zones}


def _expanded(
    fabric: Fabric, scale_set: ScaleSetRow, instance: InstanceRow, expand: Collection[str]
) -> dict[str, Any]:
    data = scale_set.profile.get("userData")
    extra = {"userData": data} if data and "userdata" in expand else {}
    if "instanceview" in expand:
        extra["instanceView"] = instance_view(fabric, scale_set, instance)
    return extra


def _failed(why: dict[str, str]) -> dict[str, Any]:
    failed = _status(f"ProvisioningState/failed/{why['code']}", "Provisioning failed")
    return failed | {"level": "Error", "message": why["message"]}


def _agent(instance: InstanceRow) -> dict[str, Any]:
    ready = _status("ProvisioningState/succeeded", "Ready")
    message = "GuestAgent is running and accepting new configurations."
    ready |= {"message": message, "time": timestamp(instance.created_at)}
    return {"vmAgentVersion": AGENT, "statuses": [ready], "extensionHandlers": []}


def _status(code: str, text: str) -> dict[str, Any]:
    return {"code": code, "level": "Info", "displayStatus": text}
