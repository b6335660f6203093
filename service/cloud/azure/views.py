"""Translate Azure's answers about scale sets into our values. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from azure.mgmt.compute.models import (
    InstanceViewStatus,
    Usage,
    VirtualMachineScaleSet,
    VirtualMachineScaleSetInstanceView,
    VirtualMachineScaleSetVM,
)

from service.cloud.azure.errors import classify_failure
from service.domain.cloud.fleet import Instance, ScaleSet, ScaleSetPhase, SpotCores, TaggedResource
from service.domain.states import CapacityType

_FAILED = "provisioningstate/failed"
_POWER = "powerstate/"
_SPOT_CORES = "lowprioritycores"
_BOUGHT = {"spot": CapacityType.SPOT, "regular": CapacityType.ON_DEMAND}


def scale_set(
    vmss: VirtualMachineScaleSet, machines: Sequence[VirtualMachineScaleSetVM]
) -> ScaleSet:
    """Return the scale set with its instances; these do not show the cause of a failure."""
    instances = tuple(_instance(machine) for machine in machines)
    return ScaleSet(
        name=vmss.name or "",
        phase=_phase(vmss, instances),
        instances=instances,
        tags=dict(vmss.tags or {}),
        created_at=vmss.properties.time_created if vmss.properties else None,
        capacity=vmss.sku.capacity if vmss.sku else None,
        region=vmss.location or "",
        vm_size=(vmss.sku.name or "") if vmss.sku else "",
        capacity_type=_BOUGHT.get(_priority(vmss)),
    )


def failure(
    scale_set: ScaleSet,
    view: VirtualMachineScaleSetInstanceView,
    machines: Sequence[VirtualMachineScaleSetVM],
) -> ScaleSet:
    """Return a failed scale set with its cause, from statuses like ProvisioningState/failed/CODE.

    GET alone has no code. The set's own statuses come first, then those of its machines.
    """
    statuses = [*(view.statuses or ()), *(s for m in machines for s in _statuses(m))]
    for status in statuses:
        state, _, code = (status.code or "").rpartition("/")
        if state.lower() == _FAILED:
            kind, message = classify_failure(code, status.message or status.display_status or "")
            return replace(scale_set, error_code=code, error_message=message, failure=kind)
    return replace(
        scale_set,
        error_code="ProvisioningFailed",
        error_message="Azure states no cause; see the resource group's activity log.",
    )


def resource(row: Mapping[str, Any]) -> TaggedResource:
    """Return the resource in a row of Azure's list of all kinds."""
    return TaggedResource(
        kind=row["type"],
        name=row["name"],
        region=row.get("location") or "",
        tags=dict(row.get("tags") or {}),
    )


def spot_cores(usages: Iterable[Usage]) -> SpotCores:
    """Return the usage of Spot cores; a subscription without that row has no limit."""
    for usage in usages:
        if usage.name and (usage.name.value or "").lower() == _SPOT_CORES:
            return SpotCores(limit=usage.limit, used=usage.current_value or 0)
    return SpotCores(limit=None, used=0)


def _phase(vmss: VirtualMachineScaleSet, instances: Sequence[Instance]) -> ScaleSetPhase:
    state = (vmss.properties.provisioning_state or "") if vmss.properties else ""
    match state.lower():
        case "succeeded":
            return ScaleSetPhase.READY
        case "failed" | "canceled":
            return ScaleSetPhase.FAILED
        case "deleting":
            return ScaleSetPhase.DELETING
        case _:  # Creating, Updating, Migrating
            capacity = (vmss.sku.capacity if vmss.sku else None) or 0
            complete = 0 < capacity <= sum(i.running for i in instances)
            return ScaleSetPhase.READY if complete else ScaleSetPhase.CREATING


def _priority(vmss: VirtualMachineScaleSet) -> str:
    """Return the priority; empty where Azure does not say, and there may be other values."""
    profile = vmss.properties.virtual_machine_profile if vmss.properties else None
    return ((profile.priority or "") if profile else "").lower()


def _instance(machine: VirtualMachineScaleSetVM) -> Instance:
    return Instance(
        instance_id=machine.instance_id or "",
        vm_id=(machine.properties.vm_id or "") if machine.properties else "",
        name=machine.name or "",
        running=_running(machine),
        created_at=machine.properties.time_created if machine.properties else None,
    )


def _running(machine: VirtualMachineScaleSetVM) -> bool:
    """Return whether the machine runs; without a power state a provisioned one counts as running.

    A missing word must not look like an eviction. An evicted machine that lingers says stopped or
    deallocated.
    """
    power = _power_state(_statuses(machine))
    if power in {"", "unknown"}:
        state = (machine.properties.provisioning_state or "") if machine.properties else ""
        return state.lower() == "succeeded"
    return power == "running"


def _power_state(statuses: Iterable[InstanceViewStatus]) -> str:
    codes = ((status.code or "").lower() for status in statuses)
    return next((c.removeprefix(_POWER) for c in codes if c.startswith(_POWER)), "")


def _statuses(machine: VirtualMachineScaleSetVM) -> Sequence[InstanceViewStatus]:
    view = machine.properties.instance_view if machine.properties else None
    return (view.statuses or ()) if view else ()
