"""Planted faults as orders for scale sets meet them: refused at once, failing later, hanging."""

from emulator import faults
from emulator.errors import refusal, sku_not_available
from emulator.fabric import Fabric
from emulator.faults import Target
from emulator.state import Fault, Operation, ScaleSet
from emulator.usages import used_up

KINDS = {
    "PUT": ("sku_not_available", "quota", "allocation_failed", "partial"),
    "DELETE": ("delete_fails", "delete_hangs"),
}
CODES = {"put": "AllocationFailed", "delete": "InternalExecutionError"}  # unless the fault says
VERY_LONG = 86_400.0  # seconds


def met(fabric: Fabric, scale_set: ScaleSet, method: str) -> Fault | None:
    """The planted fault that this order for the scale set meets."""
    target = Target(
        method=method, path=scale_set.id, region=scale_set.location, vm_size=scale_set.vm_size
    )
    return faults.take(fabric.state, KINDS[method], target, fabric.now())


def refuse(fabric: Fabric, scale_set: ScaleSet, fault: Fault | None) -> None:
    """Raise ArmError if the fault refuses a create at once."""
    if fault is None or fault.kind not in ("sku_not_available", "quota"):
        return
    fabric.changed()  # it has struck
    if fault.kind == "quota":
        raise used_up(fabric, scale_set, fault.code)
    raise sku_not_available(scale_set.name, scale_set.location, scale_set.subscription)


def hinder(operation: Operation, fault: Fault | None) -> None:
    """Let the fault make the operation fail when it is due, or take very long."""
    if fault is None:
        return
    if fault.kind == "delete_hangs":
        operation.held_by = fault.id
        operation.due_at = operation.accepted_at + (fault.delay or VERY_LONG)
        return
    operation.refusal = refusal(fault.code or CODES[operation.kind], fault.message)
    operation.granted = fault.instances if fault.kind == "partial" else 0
    if fault.delay is not None:
        operation.due_at = operation.accepted_at + fault.delay
