"""Planted faults as orders for scale sets meet them: refused, failing later, late, hanging."""

from emulator.compute.usages import quota_error
from emulator.core.errors import disallowed_by_policy, refusal, sku_not_available
from emulator.core.state import FaultRow, OperationRow, ScaleSetRow
from emulator.fabric import Fabric
from emulator.faults import planted
from emulator.faults.planted import FaultTarget

KINDS = {
    "PUT": (
        *("sku_not_available", "quota", "policy"),  # at once
        *("allocation_failed", "partial", "failed_instances", "stragglers"),
    ),
    "DELETE": ("delete_fails", "delete_hangs"),
}
CODES = {"put": "AllocationFailed", "delete": "InternalExecutionError"}  # unless the fault says
VERY_LONG = 86_400.0  # seconds


def find_fault(fabric: Fabric, scale_set: ScaleSetRow, method: str) -> FaultRow | None:
    """Return the planted fault that this order for the scale set meets."""
    target = FaultTarget(
        method=method, path=scale_set.id, region=scale_set.location, vm_size=scale_set.vm_size
    )
    return planted.take_fault(fabric.state, KINDS[method], target, fabric.now())


def refuse(fabric: Fabric, scale_set: ScaleSetRow, fault: FaultRow | None) -> None:
    """Raise ArmError if the fault refuses a create at once."""
    if fault is None or fault.kind not in ("sku_not_available", "quota", "policy"):
        return
    fabric.changed()  # it has struck
    if fault.kind == "quota":
        raise quota_error(fabric, scale_set, fault.code)
    if fault.kind == "policy":
        policy = fault.policy or "Allowed virtual machine size SKUs"
        raise disallowed_by_policy(scale_set.name, scale_set.subscription, policy)
    raise sku_not_available(scale_set.name, scale_set.location, scale_set.subscription)


def apply_fault(fabric: Fabric, operation: OperationRow, fault: FaultRow | None) -> None:
    """Let the fault make the operation fail when it is due, or take very long."""
    if fault is None:
        return
    due_at, change = operation.due_at, fabric.state.change
    if fault.kind == "delete_hangs":
        due_at = operation.accepted_at + (fault.delay or VERY_LONG)
        change(operation, held_by=fault.id, due_at=due_at)
    elif fault.kind == "stragglers":
        late_by = fault.delay or VERY_LONG
        change(operation, held_by=fault.id, late=fault.instances, late_by=late_by)
    else:
        change(
            operation,
            refusal=refusal(fault.code or CODES[operation.kind], fault.message),
            granted=0 if fault.kind == "allocation_failed" else fault.instances,
            keeps_failed=fault.kind == "failed_instances",
            due_at=due_at if fault.delay is None else operation.accepted_at + fault.delay,
        )
