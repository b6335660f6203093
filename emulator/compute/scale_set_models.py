"""What a PUT or PATCH makes of a scale set's model."""

import copy
import uuid
from dataclasses import replace
from typing import Any

from emulator.compute.rules.scale_set_form import SCALE_SET, formed
from emulator.compute.rules.scale_set_rules import AKA, check_password
from emulator.core.catalog import check_location, region_name
from emulator.core.errors import ArmError, change_not_allowed, invalid, missing, wrong_location
from emulator.core.state import ResourceGroup, ScaleSetRow

MODEL = ("location", "tags", "sku", "identity", "zones", "plan", "properties")
UPDATABLE = tuple(member for member in MODEL if member != "location")
UNIFORM = {"singlePlacementGroup": True, "orchestrationMode": "Uniform", "overprovision": True}
FLEXIBLE = {"singlePlacementGroup": False, "orchestrationMode": "Flexible"}
SCALE_SETS = "Microsoft.Compute/virtualMachineScaleSets"
UNSIZED = {"name": "Standard_DS1_v2", "tier": "Standard", "capacity": 0}  # as `az` would take
FIXED = ("orchestrationMode", "platformFaultDomainCount")
UNSET = {"platformFaultDomainCount": 1}  # as azure-cli's test_spot_restore_policy was answered
FIXED_IN_PROFILE = (
    ("priority",),
    ("evictionPolicy",),
    ("osProfile", "adminUsername"),
    ("osProfile", "computerNamePrefix"),
    ("osDisk", "diffDiskSettings"),
)


def new(name: str, group: ResourceGroup, body: dict[str, Any], now: float) -> ScaleSetRow:
    """Return a new scale set as its first PUT describes it, or raise ArmError."""
    body = formed(body, SCALE_SET)
    flexible = (body.get("properties") or {}).get("orchestrationMode") == "Flexible"
    location = check_location(body.get("location"), SCALE_SETS)
    if not body.get("sku") and flexible and not body["properties"].get("virtualMachineProfile"):
        body["sku"] = UNSIZED  # it may be made before anything is known of its VMs
    if not body.get("sku"):
        raise missing("sku")
    model, custom_data = _without_secrets({k: body[k] for k in MODEL if body.get(k) is not None})
    properties = {k: v for k, v in (model.get("properties") or {}).items() if v is not None}
    model["properties"] = (FLEXIBLE if flexible else UNIFORM) | properties
    if profile := properties.get("virtualMachineProfile"):
        security = profile.get("securityProfile") or {}
        profile["securityProfile"] = {"securityType": "Standard"} | security
    model["location"] = location
    return ScaleSetRow(
        subscription=group.subscription,
        group=group.name,
        name=name,
        model=model,
        custom_data=custom_data or "",
        created_at=now,
        unique_id=str(uuid.uuid4()),
    )


def merged(old: ScaleSetRow, body: dict[str, Any]) -> ScaleSetRow:
    """Return a version of the scale set with the body merged in, or raise ArmError."""
    body = formed(body, SCALE_SET)
    changes, custom_data = _without_secrets({k: body[k] for k in MODEL if body.get(k) is not None})
    location = region_name(changes.pop("location", old.location))
    if location != old.location:
        raise wrong_location(old.name, old.location, old.group, location)
    tags = changes.pop("tags", None)
    updated = replace(
        old,
        model=_merge(old.model, changes) | ({} if tags is None else {"tags": tags}),
        custom_data=old.custom_data if custom_data is None else custom_data,
        etag=old.etag + 1,
        error=None,
    )
    _check_changes(old, updated)
    return replace(updated, version=old.version + (_model_parts(old) != _model_parts(updated)))


def _without_secrets(body: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Return the body without password and custom data, which Azure never shows, and the latter."""
    model = copy.deepcopy(body)
    vm_profile = (model.get("properties") or {}).get("virtualMachineProfile") or {}
    check_password(vm_profile)
    profile = vm_profile.get("osProfile")
    if not profile:
        return model, None
    profile.pop("adminPassword", None)
    return model, profile.pop("customData", None)


def _merge(old: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for name, value in changes.items():
        before = merged.get(name)
        if value is None:
            merged.pop(name, None)
        elif isinstance(before, dict) and isinstance(value, dict):
            merged[name] = _merge(before, value)
        else:
            merged[name] = value
    return merged


def _check_changes(old: ScaleSetRow, updated: ScaleSetRow) -> None:
    """Raise ArmError for a change of what is fixed once a scale set is made."""
    before, after = old.model["properties"], updated.model["properties"]
    for member in FIXED:
        if before.get(member, UNSET.get(member)) != after.get(member, UNSET.get(member)):
            raise change_not_allowed(member)
    if after.get("singlePlacementGroup") and not before.get("singlePlacementGroup"):
        raise change_not_allowed("singlePlacementGroup")
    for path in FIXED_IN_PROFILE:
        if _in_profile(old, path) != _in_profile(updated, path):
            raise change_not_allowed(".".join(path) if len(path) > 1 else path[0])
    if set(old.model.get("zones") or []) - set(updated.model.get("zones") or []):
        raise change_not_allowed("zones")
    size = updated.model["sku"].get("name") or ""
    if old.instances and size.lower() != str(old.model["sku"].get("name")).lower():
        raise invalid(
            "The emulator changes the size of a scale set only while it has no instances: set "
            "sku.capacity to 0 before.",
            target="sku.name",
        )
    _check_price(old, updated)


def _check_price(old: ScaleSetRow, updated: ScaleSetRow) -> None:
    if old.max_price == updated.max_price:
        return
    if updated.model["properties"].get("upgradePolicy", {}).get("mode") == "Manual":
        # The VMs keep the old price. Azure took such a PATCH with VMs allocated when
        # azure-libraries-for-net recorded CanCreateLowPriorityVMSSInstance.
        return
    for instance in old.instances.values():
        if instance.phase == "allocated":
            raise ArmError(
                409,
                "MaxPriceChangeNotAllowedForAllocatedVMs",
                f"Max price change is not allowed when the VM '{old.vm_name(instance)}' is "
                "currently allocated. Deallocate and try again. " + AKA,
            )


def _in_profile(scale_set: ScaleSetRow, path: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON
    value: Any = scale_set.profile
    if path[0] == "osDisk":
        value = value.get("storageProfile") or {}
    for name in path:
        value = (value or {}).get(name)
    return value or None


def _model_parts(scale_set: ScaleSetRow) -> tuple[Any, ...]:
    """Return all that an instance has of its scale set."""
    size = scale_set.model["sku"].get("name")
    return scale_set.profile, scale_set.custom_data, size, scale_set.model.get("tags")
