"""Scale sets: create, update, scale, show, list, delete."""

import copy
import uuid
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator import fault_orders, operations, scale_set_rules
from emulator.catalog import Offer, catalog
from emulator.errors import (
    ArmError,
    invalid,
    marked_for_deletion,
    precondition_failed,
    scale_set_not_found,
    sku_not_available,
)
from emulator.fabric import Fabric
from emulator.front_door import fabric_of, page, read_json
from emulator.resource_groups import find_group
from emulator.state import Fault, Instance, Operation, ResourceGroup, ScaleSet, scale_set_id
from emulator.usages import check_quota
from emulator.views import scale_set_body, scale_set_view

MODEL = ("location", "tags", "sku", "identity", "zones", "plan", "properties")
DEFAULTS = {"singlePlacementGroup": True, "orchestrationMode": "Uniform", "overprovision": True}


async def put(request: Request) -> Response:
    """Create the scale set, or merge the body into it; either way bring it to its capacity."""
    fabric = fabric_of(request)
    body = await read_json(request)
    group = find_group(request)
    old = _lookup(request)
    _check_conditions(request, old)
    if old and old.provisioning_state == "Deleting":
        raise marked_for_deletion("Create or Update Virtual Machine Scale Set", old.name)
    scale_set = _merged(old, body) if old else _new(request, group, body, fabric.now())
    offer = _offer(scale_set)
    scale_set_rules.check(scale_set.name, scale_set.model, scale_set.custom_data, offer)
    fault = fault_orders.met(fabric, scale_set, "PUT")
    fault_orders.refuse(fabric, scale_set, fault)
    check_quota(fabric, scale_set, offer.size.vcpus)
    return _accept(request, fabric, scale_set, fault, new=old is None)


async def get(request: Request) -> Response:
    """Show one scale set."""
    return JSONResponse(scale_set_body(find_scale_set(request)))


async def view(request: Request) -> Response:
    """Show how one scale set is doing."""
    return JSONResponse(scale_set_view(find_scale_set(request)))


async def list_in_group(request: Request) -> Response:
    """List the scale sets of one resource group."""
    group = find_group(request)
    rows = fabric_of(request).state.scale_sets.values()
    return page(request, [scale_set_body(s) for s in rows if s.key.startswith(group.key + "/")])


async def list_all(request: Request) -> Response:
    """List the scale sets of the subscription."""
    wanted = request.path_params["subscription"].lower()
    rows = fabric_of(request).state.scale_sets.values()
    return page(request, [scale_set_body(s) for s in rows if s.subscription.lower() == wanted])


async def delete(request: Request) -> Response:
    """Begin deleting; a second call joins the first. 204 when there is nothing to delete."""
    fabric = fabric_of(request)
    find_group(request)
    scale_set = _lookup(request)
    if scale_set is None:
        return Response(status_code=204)
    running = fabric.operations(scale_set.key, "delete")
    if not running:
        operations.preempt(fabric, scale_set.key)
        scale_set.provisioning_state = "Deleting"
        running = [_begin(fabric, "delete", scale_set, fabric.settings.delete_seconds)]
        fault_orders.hinder(running[0], fault_orders.met(fabric, scale_set, "DELETE"))
        fabric.changed()
    return Response(status_code=202, headers=operations.headers(request, running[0]))


async def delete_instances(request: Request) -> Response:
    """Begin deleting some instances; the capacity falls with them."""
    fabric = fabric_of(request)
    scale_set = find_scale_set(request)
    if scale_set.provisioning_state == "Deleting":
        raise marked_for_deletion("Delete Virtual Machine Scale Set VMs", scale_set.name)
    named = (await read_json(request)).get("instanceIds")
    if not isinstance(named, list) or not named:
        raise invalid("Required parameter 'instanceIds' is missing (null).")
    ids = tuple(scale_set.instances) if named == ["*"] else tuple(str(n) for n in named)
    if unknown := [name for name in ids if name not in scale_set.instances]:
        raise invalid(f"The provided instanceId {unknown[0]} is not an active instance.")
    scale_set.provisioning_state = "Updating"
    operation = operations.begin(
        fabric,
        "delete_instances",
        scale_set.key,
        subscription=scale_set.subscription,
        location=scale_set.location,
        seconds=fabric.settings.delete_seconds,
        instance_ids=ids,
    )
    fabric.changed()
    return Response(status_code=202, headers=operations.headers(request, operation))


def restore(fabric: Fabric, scale_set: ScaleSet, count: int) -> None:
    """Bring evicted instances back, under new ids, as a Spot restore policy does."""
    scale_set.capacity += count
    for _ in range(count):
        _add_instance(fabric, scale_set)
    _begin(fabric, "put", scale_set, fabric.settings.create_seconds)
    fabric.changed()


def find_scale_set(request: Request) -> ScaleSet:
    """The scale set that the path names, or ArmError 404."""
    find_group(request)
    if (found := _lookup(request)) is None:
        raise scale_set_not_found(request.path_params["group"], request.path_params["name"])
    return found


def _lookup(request: Request) -> ScaleSet | None:
    names = request.path_params
    key = scale_set_id(names["subscription"], names["group"], names["name"]).lower()
    return fabric_of(request).state.scale_sets.get(key)


def _check_conditions(request: Request, old: ScaleSet | None) -> None:
    """Hold the request to its If-Match and If-None-Match."""
    etag = f'"{old.etag}"' if old else None
    wanted, unwanted = request.headers.get("if-match"), request.headers.get("if-none-match")
    if (wanted and (old is None or wanted not in ("*", etag))) or (
        unwanted and old and unwanted in ("*", etag)
    ):
        raise precondition_failed()


def _new(request: Request, group: ResourceGroup, body: dict[str, Any], now: float) -> ScaleSet:
    for member in ("location", "sku"):
        if not body.get(member):
            raise invalid(f"Required parameter '{member}' is missing (null).")
    model, custom_data = _without_secrets({k: body[k] for k in MODEL if k in body})
    model["properties"] = DEFAULTS | (model.get("properties") or {})
    model["location"] = str(model["location"]).lower().replace(" ", "")
    return ScaleSet(
        subscription=group.subscription,
        group=group.name,
        name=request.path_params["name"],
        model=model,
        custom_data=custom_data or "",
        created_at=now,
        unique_id=str(uuid.uuid4()),
    )


def _merged(old: ScaleSet, body: dict[str, Any]) -> ScaleSet:
    """A copy of the scale set with the body merged in; members not given stay as they are."""
    changes, custom_data = _without_secrets({k: body[k] for k in MODEL if k in body})
    place = str(changes.pop("location", old.location)).lower().replace(" ", "")
    if place != old.location:
        raise ArmError(
            409,
            "InvalidResourceLocation",
            f"The resource '{old.name}' already exists in location '{old.location}' in resource "
            f"group '{old.group}'. A resource with the same name cannot be created in location "
            f"'{place}'. Please select a new resource name.",
        )
    fresh = copy.deepcopy(old)
    tags = changes.pop("tags", None)
    fresh.model = _merge(fresh.model, changes) | ({} if tags is None else {"tags": tags})
    fresh.custom_data = old.custom_data if custom_data is None else custom_data
    fresh.provisioning_state = "Updating" if old.instances else "Creating"
    fresh.etag += 1
    fresh.error = None
    return fresh


def _without_secrets(body: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """The body without password and custom data (which Azure never shows), and the latter."""
    model = copy.deepcopy(body)
    profile = ((model.get("properties") or {}).get("virtualMachineProfile") or {}).get("osProfile")
    if not profile:
        return model, None
    profile.pop("adminPassword", None)
    return model, profile.pop("customData", None)


def _merge(old: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for name, value in changes.items():
        before = merged.get(name)
        both = isinstance(before, dict) and isinstance(value, dict)
        merged[name] = _merge(before, value) if both else value  # type: ignore[arg-type] # `both`
    return merged


def _offer(scale_set: ScaleSet) -> Offer:
    name = scale_set.model["sku"].get("name")
    if not name or catalog().size(str(name)) is None:
        raise invalid(f"The value {name} provided for the VM size is not valid.")
    if offer := catalog().offer(scale_set.vm_size, scale_set.location):
        return offer
    raise sku_not_available(scale_set.name, scale_set.location, scale_set.subscription)


def _accept(
    request: Request, fabric: Fabric, scale_set: ScaleSet, fault: Fault | None, *, new: bool
) -> Response:
    """Write the scale set down with its new instances and the operation that allocates them."""
    known = len(scale_set.instances)
    fabric.state.scale_sets[scale_set.key] = scale_set
    for _ in range(scale_set.capacity - sum(not i.doom for i in scale_set.instances.values())):
        _add_instance(fabric, scale_set)
    before = operations.preempt(fabric, scale_set.key)
    nothing_new = before is not None and len(scale_set.instances) == known
    seconds = before - fabric.now() if before and nothing_new else fabric.settings.create_seconds
    operation = _begin(fabric, "put", scale_set, seconds)
    fault_orders.hinder(operation, fault)
    fabric.changed()
    answer = operations.headers(request, operation)
    return JSONResponse(scale_set_body(scale_set), status_code=201 if new else 200, headers=answer)


def _add_instance(fabric: Fabric, scale_set: ScaleSet) -> None:
    name = str(scale_set.next_instance)
    scale_set.next_instance += 1
    scale_set.instances[name] = Instance(
        instance_id=name,
        vm_id=str(uuid.uuid4()),
        token=uuid.uuid4().hex,
        address=fabric.next_address(),
        created_at=fabric.now(),
    )


def _begin(fabric: Fabric, kind: str, scale_set: ScaleSet, seconds: float) -> Operation:
    return operations.begin(
        fabric,
        kind,
        scale_set.key,
        subscription=scale_set.subscription,
        location=scale_set.location,
        seconds=seconds,
    )
