"""Orders to VMs: start, power off, restart, deallocate, redeploy, delete.

Each is a long operation. When it is due the instances get their new state, or the doom after
which they have it (`emulator.compute.power`); it is over when no doom is left.
"""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from emulator.arm import operations
from emulator.arm.front_door import fabric_of, read_json
from emulator.compute import power
from emulator.compute.instances import begin_deletion, find_instance
from emulator.compute.rules.scale_set_form import ORDER, formed
from emulator.compute.scale_sets import find_scale_set
from emulator.core.errors import PREEMPTED, invalid, marked_for_deletion, missing, not_allowed
from emulator.core.state import InstanceRow, OperationRow, ScaleSetRow
from emulator.fabric import Fabric

Handler = Callable[[Request], Awaitable[Response]]
KINDS = power.ORDERS
NEEDS_POWER = ("restart", "redeploy")


def on_set(kind: str) -> Handler:
    """Return the handler of an order to the instances that the body names, or to all."""

    async def handler(request: Request) -> Response:
        scale_set = find_scale_set(request)
        _check_not_deleting(scale_set, kind)
        named = formed(await read_json(request), ORDER).get("instanceIds")
        ids = _check_names(scale_set, named) if named and named != ["*"] else _all(scale_set)
        return _begin_orders(request, scale_set, kind, ids)

    return handler


def on_instance(kind: str) -> Handler:
    """Return the handler of an order to one instance."""

    async def handler(request: Request) -> Response:
        scale_set, instance = find_instance(request)
        _check_not_deleting(scale_set, kind)
        return _begin_orders(request, scale_set, kind, (instance.instance_id,), alone=True)

    return handler


async def delete_instances(request: Request) -> Response:
    """Begin deleting some instances; the capacity falls with them."""
    scale_set = find_scale_set(request)
    named = formed(await read_json(request), ORDER).get("instanceIds")
    if not named:
        raise missing("instanceIds")
    ids = tuple(scale_set.instances) if named == ["*"] else _check_names(scale_set, named)
    return begin_deletion(request, scale_set, ids)


def _begin_orders(
    request: Request,
    scale_set: ScaleSetRow,
    kind: str,
    ids: tuple[str, ...],
    *,
    alone: bool = False,
) -> Response:
    """Accept the order for these instances; it overtakes what was ordered of them before.

    Of an order ``alone`` for one instance its scale set shows nothing.
    """
    fabric = fabric_of(request)
    instances = [scale_set.instances[name] for name in ids]
    _check_possible(scale_set, instances, kind)
    _overtake(fabric, scale_set, ids)
    starting, settings = kind in ("start", "redeploy"), fabric.settings
    seconds = settings.create_seconds if starting else settings.delete_seconds
    operation = operations.begin_operation(
        fabric, kind, scale_set, seconds=seconds, instance_ids=ids, alone=alone
    )
    for instance in instances:
        fabric.state.change(instance, busy=kind)
    fabric.changed()
    return Response(status_code=202, headers=operations.headers(request, operation))


def _check_possible(scale_set: ScaleSetRow, instances: list[InstanceRow], kind: str) -> None:
    """Raise ArmError for an order that the VMs cannot carry out."""
    if kind == "deallocate" and scale_set.ephemeral:
        raise not_allowed(
            "Operation 'deallocate' is not supported for VMs or VM Scale Set instances using an "
            "ephemeral OS disk."
        )
    off = [i for i in instances if i.phase == "deallocated" or i.stopped]
    if kind in NEEDS_POWER and off:
        raise not_allowed("The operation requires the VM to be running (or set to run).")


def _overtake(fabric: Fabric, scale_set: ScaleSetRow, ids: tuple[str, ...]) -> None:
    """Cancel the unfinished orders to any of these instances."""
    for kind in KINDS:
        for operation in fabric.operations(scale_set.key, kind):
            if set(operation.instance_ids) & set(ids):
                fabric.state.end(operation, fabric.now(), PREEMPTED, "Canceled")
                _release(fabric, scale_set, operation)


def _release(fabric: Fabric, scale_set: ScaleSetRow, operation: OperationRow) -> None:
    """Mark the instances of an ended order as no longer busy with it."""
    for name in operation.instance_ids:
        if (instance := scale_set.instances.get(name)) and instance.busy == operation.kind:
            fabric.state.change(instance, busy="")


def carry_out(fabric: Fabric, now: float) -> bool:
    """Do what is due of the orders, and end those that are done."""
    due = fabric.due(KINDS)
    for operation in due:
        scale_set = fabric.state.scale_sets.get(operation.target)
        if scale_set is None or scale_set.provisioning_state == "Deleting":
            fabric.state.end(operation, now, PREEMPTED, "Canceled")
            continue
        instances = [i for n in operation.instance_ids if (i := scale_set.instances.get(n))]
        if not operation.input.get("begun"):
            fabric.state.change(operation, input=operation.input | {"begun": True})
            _begin(fabric, scale_set, operation, instances)
        elif not any(i.doom == operation.kind for i in instances):
            fabric.state.end(operation, now)
        if fabric.state.operations[operation.id].ended_at is not None:
            _release(fabric, scale_set, operation)
    return bool(due)


def _begin(
    fabric: Fabric, scale_set: ScaleSetRow, operation: OperationRow, instances: list[InstanceRow]
) -> None:
    kind = operation.kind
    if kind == "start":
        waiting = [i for i in instances if i.phase == "deallocated"]
        granted, refusal = fabric.grant(scale_set, waiting)
        granted_ids = {i.instance_id for i in granted}
        for instance in instances:
            if instance.phase != "deallocated" or instance.instance_id in granted_ids:
                _switch_on(fabric, instance)
        if refusal:
            fabric.state.end(operation, fabric.now(), refusal)
        return
    for instance in instances:
        if instance.phase == "allocated" and not (kind == "powerOff" and instance.stopped):
            fabric.doom(instance, kind)


def _switch_on(fabric: Fabric, instance: InstanceRow) -> None:
    if instance.stopped or instance.phase == "deallocated":
        fabric.state.change(instance, phase="allocated", stopped=False, booted=False)


def _all(scale_set: ScaleSetRow) -> tuple[str, ...]:
    """Those that orders to the whole scale set reach."""
    return tuple(i.instance_id for i in scale_set.instances.values() if i.phase != "creating")


def _check_names(scale_set: ScaleSetRow, named: list[str]) -> tuple[str, ...]:
    if unknown := [name for name in named if name not in scale_set.instances]:
        message = (
            f"The provided instanceId {unknown[0]} is not an active Virtual Machine Scale Set VM "
            "instanceId."
        )
        raise invalid(message, target="instanceIds")
    return tuple(dict.fromkeys(named))


def _check_not_deleting(scale_set: ScaleSetRow, kind: str) -> None:
    if scale_set.provisioning_state == "Deleting":
        raise marked_for_deletion(kind, scale_set.name)
