"""Scale sets: create, update, scale, show, list, delete."""

import contextlib
import re
import uuid
from dataclasses import replace
from decimal import Decimal
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.access.identity import managed
from emulator.arm import operations
from emulator.arm.front_door import check_conditions, fabric_of, page, read_json
from emulator.arm.resource_groups import find_group, list_start
from emulator.arm.views import expanded, scale_set_body, scale_set_view
from emulator.capacity.allocation import refuse_if_sold_out
from emulator.compute import scale_set_models
from emulator.compute.rules import scale_set_rules, sku_profile
from emulator.compute.usages import check_quota
from emulator.core.catalog import SizeOffer, catalog
from emulator.core.errors import (
    ArmError,
    invalid,
    marked_for_deletion,
    resource_not_found,
    sku_not_available,
)
from emulator.core.state import FaultRow, InstanceRow, OperationRow, ScaleSetRow, scale_set_id
from emulator.fabric import Fabric, staying
from emulator.faults import scale_set_faults
from emulator.market import restrictions

UPDATE = "Create or Update Virtual Machine Scale Set"
NEVER_SPOT = re.compile(r"Standard_B\d.*|.*_Promo", re.IGNORECASE)


async def put(request: Request) -> Response:
    """Create the scale set, or merge the body into it; either way bring it to its capacity."""
    fabric = fabric_of(request)
    body = await read_json(request)
    group = find_group(request)
    old = _lookup(request)
    check_conditions(request, *([old.etag] if old else []))
    if old:
        return _update(request, fabric, old, body)
    name = request.path_params["name"]
    return _accept(request, fabric, scale_set_models.new(name, group, body, fabric.now()), new=True)


async def patch(request: Request) -> Response:
    """Merge the body into the scale set, and bring it to its capacity."""
    fabric = fabric_of(request)
    body = await read_json(request)
    old = find_scale_set(request)
    check_conditions(request, old.etag)
    changes = {k: body[k] for k in scale_set_models.UPDATABLE if k in body}
    return _update(request, fabric, old, changes)


async def get(request: Request) -> Response:
    """Show one scale set, with $expand=userData if wanted."""
    return JSONResponse(scale_set_body(find_scale_set(request), expanded(request)))


async def view(request: Request) -> Response:
    """Show how one scale set is doing."""
    scale_set = find_scale_set(request)
    if scale_set.flexible:
        raise refused_of_flexible("instanceView.GET", scale_set)
    return JSONResponse(scale_set_view(scale_set))


async def list_all(request: Request) -> Response:
    """List the scale sets of a resource group or of the subscription."""
    rows = fabric_of(request).state.visible(list_start(request))
    return page(request, [scale_set_body(s) for s in rows])


async def delete(request: Request) -> Response:
    """Begin deleting; a second call joins the first. 204 when there is nothing to delete."""
    fabric = fabric_of(request)
    find_group(request)
    scale_set = _lookup(request)
    if scale_set is None:
        return Response(status_code=204)
    check_conditions(request, scale_set.etag)
    running = fabric.operations(scale_set.key, "delete")
    if not running:
        operations.preempt(fabric, scale_set.key, "put", "restore")
        seconds = fabric.settings.delete_seconds
        running = [operations.begin_operation(fabric, "delete", scale_set, seconds=seconds)]
        fault = scale_set_faults.find_fault(fabric, scale_set, "DELETE")
        scale_set_faults.apply_fault(fabric, running[0], fault)
        fabric.changed()
    return Response(status_code=202, headers=operations.headers(request, running[0]))


def grow(fabric: Fabric, scale_set: ScaleSetRow, count: int, kind: str = "put") -> list[str]:
    """Add instances in an operation of this kind; return their ids. The caller says `changed`."""
    scale_set = fabric.state.resize(scale_set, count)
    added = _add_instances(fabric, scale_set, count)
    seconds = fabric.settings.create_seconds
    operations.begin_operation(fabric, kind, scale_set, seconds=seconds, instance_ids=tuple(added))
    return added


def check_room_in_quota(fabric: Fabric, scale_set: ScaleSetRow, count: int) -> None:
    """Raise ArmError if this number of further instances exceeds a quota."""
    larger = scale_set.resized(len(scale_set.instances) + count)
    check_quota(fabric, larger, _offer(scale_set).size.vcpus)


def find_scale_set(request: Request) -> ScaleSetRow:
    """Return the scale set that the path names, or raise ArmError 404."""
    find_group(request)
    if (scale_set := _lookup(request)) is None:
        path = f"Microsoft.Compute/virtualMachineScaleSets/{request.path_params['name']}"
        raise resource_not_found(path, request.path_params["group"])
    return scale_set


def refused_of_flexible(call: str, scale_set: ScaleSetRow) -> Exception:
    """Return the error for a call that only Uniform scale sets answer."""
    return invalid(
        f"Operation 'VirtualMachineScaleSets.{call}' is not allowed on Virtual Machine Scale Set "
        f"'{scale_set.name}'.",
        "BadRequest",
    )


def _lookup(request: Request) -> ScaleSetRow | None:
    names = request.path_params
    key = scale_set_id(names["subscription"], names["group"], names["name"]).lower()
    return fabric_of(request).state.scale_sets.get(key)


def _update(
    request: Request, fabric: Fabric, old: ScaleSetRow, changes: dict[str, Any]
) -> Response:
    if old.provisioning_state == "Deleting":
        raise marked_for_deletion(UPDATE, old.name)
    return _accept(request, fabric, scale_set_models.merged(old, changes))


def _accept(
    request: Request, fabric: Fabric, scale_set: ScaleSetRow, *, new: bool = False
) -> Response:
    """Check what is wanted, write it down, and answer with the operation that brings it about."""
    scale_set = managed.show_ids(fabric.state, scale_set)
    sizes = sku_profile.sizes(scale_set)
    scale_set = replace(scale_set, mixed_size=sizes[0])
    priced = replace(_offer(scale_set), spot=_spot_price(fabric, scale_set))
    scale_set_rules.check(fabric.state, scale_set, priced)
    fault = scale_set_faults.find_fault(fabric, scale_set, "PUT")
    scale_set_faults.refuse(fabric, scale_set, fault)
    scale_set = _settle_on(sizes, fabric, scale_set)
    operation = _carry_out(fabric, scale_set, fault)
    fabric.changed()
    answer = operations.headers(request, operation)
    body = scale_set_body(fabric.state.scale_sets[scale_set.key])
    return JSONResponse(body, status_code=201 if new else 200, headers=answer)


def _settle_on(sizes: list[str], fabric: Fabric, scale_set: ScaleSetRow) -> ScaleSetRow:
    """Give the scale set the first size that it may have, or raise ArmError for the last."""
    *earlier, last = [replace(scale_set, mixed_size=size) for size in sizes]
    for sized in earlier:
        with contextlib.suppress(ArmError):
            return _checked(fabric, sized)
    return _checked(fabric, last)


def _checked(fabric: Fabric, scale_set: ScaleSetRow) -> ScaleSetRow:
    """Return the scale set if its size can be had, or raise ArmError."""
    restrictions.check(fabric, scale_set)
    check_quota(fabric, scale_set, _offer(scale_set).size.vcpus)
    refuse_if_sold_out(fabric.spot_capacity, scale_set, fabric.now())
    return scale_set


def _offer(scale_set: ScaleSetRow) -> SizeOffer:
    name = scale_set.mixed_size or scale_set.model["sku"].get("name")
    if scale_set.spot and NEVER_SPOT.fullmatch(str(name)):
        raise invalid(
            "Azure Spot Virtual Machine is not supported for this VM size "
            f"{name}. {scale_set_rules.AKA}",
            "AzureSpotIsNotSupportedForThisVMSize",
        )
    if not name or catalog().size(str(name)) is None:
        raise invalid(f"The value {name} provided for the VM size is not valid.")
    if offer := catalog().offer(scale_set.vm_size, scale_set.location):
        return offer
    raise sku_not_available(scale_set.name, scale_set.location, scale_set.subscription)


def _spot_price(fabric: Fabric, scale_set: ScaleSetRow) -> Decimal:
    price = fabric.spot_capacity.spot_price(scale_set.location, scale_set.vm_size, fabric.now())
    assert price is not None, "it is sold there: there is an offer"
    return price


def _carry_out(fabric: Fabric, scale_set: ScaleSetRow, fault: FaultRow | None) -> OperationRow:
    """Take over the model and the new instances; open the operation that allocates them.

    An update that adds none may end as early as the one that it overtakes.
    """
    count_before = len(scale_set.instances)
    fabric.state.put(scale_set)
    _add_instances(fabric, scale_set, scale_set.capacity - len(staying(scale_set)))
    before = operations.preempt(fabric, scale_set.key, "put")
    nothing_new = before is not None and len(scale_set.instances) == count_before
    seconds = before - fabric.now() if before and nothing_new else fabric.settings.create_seconds
    operation = operations.begin_operation(fabric, "put", scale_set, seconds=seconds)
    scale_set_faults.apply_fault(fabric, operation, fault)
    return operation


def _add_instances(fabric: Fabric, scale_set: ScaleSetRow, count: int) -> list[str]:
    added, zones = [], scale_set.model.get("zones") or [""]
    first = scale_set.next_instance
    for number in range(first, first + count):
        name = f"{scale_set.name}_{uuid.uuid4().hex[:8]}" if scale_set.flexible else str(number)
        instance = InstanceRow(
            set_key=scale_set.key,
            instance_id=name,
            vm_id=str(uuid.uuid4()),
            token=uuid.uuid4().hex,
            address=fabric.next_address(),
            created_at=fabric.now(),
            zone=zones[number % len(zones)],
            applied=scale_set.version,
        )
        fabric.state.put(instance)
        added.append(name)
    fabric.state.change(scale_set, next_instance=first + len(added))
    return added
