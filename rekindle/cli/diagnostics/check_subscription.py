"""Check the subscription's providers, features, sizes, quota and VM image."""

import re
from collections.abc import Iterator
from typing import Any

import httpx

from rekindle.cli.diagnostics.arm_client import ArmClient, said
from rekindle.cli.diagnostics.check import CheckResult, doubt, missing, ok, skipped

_PROVIDERS = ("Microsoft.Compute", "Microsoft.Network", "Microsoft.Storage")
_IDENTITIES = "Microsoft.ManagedIdentity"
_SPOT_QUOTA = "lowPriorityCores"
_AT_HOST = "providers/Microsoft.Features/providers/Microsoft.Compute/features/EncryptionAtHost"
_COMPUTE = "2024-07-01"
Json = dict[str, Any]


def providers(azure: ArmClient) -> Iterator[CheckResult]:
    """Check that each resource provider of scale sets is registered."""
    more = (_IDENTITIES,) if azure.setting("AZURE_IDENTITY_ID") else ()
    for namespace in (*_PROVIDERS, *more):
        yield provider(azure, namespace)


def provider(azure: ArmClient, namespace: str) -> CheckResult:
    """Check that a resource provider is registered."""
    name = f"provider {namespace}"
    state = azure.get(f"/providers/{namespace}", "2021-04-01")["registrationState"]
    if state == "Registered":
        return ok(name, "registered")
    return missing(name, state, f"Run: az provider register --namespace {namespace} --wait")


def encryption(azure: ArmClient) -> Iterator[CheckResult]:
    """Check that encryption at host is registered and that named resources exist."""
    if azure.policy("encryption_at_host"):
        state = azure.get(f"/{_AT_HOST}", "2021-07-01")["properties"]["state"]
        run = "Run: az feature register --namespace Microsoft.Compute --name EncryptionAtHost"
        good = state == "Registered"
        yield ok("encryption at host", state) if good else missing("encryption at host", state, run)
    for member, name in (
        ("disk_encryption_set_id", "disk encryption set"),
        ("proximity_placement_group_id", "placement group"),
    ):
        template = azure.policy(member) or ""
        for place in azure.in_regions(template):
            if place:
                yield _named(azure, name, place)


def _named(azure: ArmClient, name: str, resource_id: str) -> CheckResult:
    try:
        azure.get_id(resource_id, _COMPUTE)
    except httpx.HTTPError as error:
        return missing(name, said(error), azure.assign("Reader", resource_id))
    return ok(name, resource_id.rpartition("/")[2])


def sizes(azure: ArmClient) -> Iterator[CheckResult]:
    """Check that each size is available in its region, with quota and the policy's features."""
    for region in azure.regions:
        listed = azure.get(
            "/providers/Microsoft.Compute/skus",
            "2021-07-01",
            **{"$filter": f"location eq '{region}'"},
        )["value"]
        machines = {s["name"].lower(): s for s in listed if s["resourceType"] == "virtualMachines"}
        usages = azure.get(f"/providers/Microsoft.Compute/locations/{region}/usages", _COMPUTE)
        free = {u["name"]["value"].lower(): u for u in usages["value"]}
        for size, place, spot in azure.offerings:
            if place == region:
                sku = machines.get(size.lower())
                yield _size(azure, f"size {size}@{region}", sku, region)
                yield _quota(azure, f"{size}@{region}", sku, free, spot=spot)


def _size(azure: ArmClient, name: str, sku: Json | None, region: str) -> CheckResult:
    see = f"Choose another. Run: az vm list-skus -l {region} --all -r virtualMachines -o table"
    if sku is None:
        return missing(name, f"is not sold in {region}", see)
    zone = (azure.policy("zones") or {}).get(region)
    for barred in sku["restrictions"]:
        zones = barred.get("restrictionInfo", {}).get("zones") or []
        if barred["type"] == "Location" or zone in zones:
            where = f"zone {zone} of {region}" if zone in zones else region
            return missing(name, f"{barred['reasonCode']} in {where}", see)
    if zone and zone not in sku["locationInfo"][0]["zones"]:
        return missing(name, f"is not sold in zone {zone} of {region}", see)
    if fault := _incapable(azure, {c["name"]: c["value"] for c in sku["capabilities"]}):
        return missing(name, fault, see)
    return ok(name, "sold to this subscription")


def _incapable(azure: ArmClient, has: dict[str, str]) -> str:
    """Return which feature of the policy the size lacks; "" if none."""
    if azure.policy("security_type") == "TrustedLaunch" and "TrustedLaunchDisabled" in has:
        return "does not support TrustedLaunch"
    if azure.policy("encryption_at_host") and has.get("EncryptionAtHostSupported") == "False":
        return "does not support encryption at host"
    if has.get("EphemeralOSDiskSupported") == "False":
        return "does not support ephemeral OS disks"
    wanted = azure.policy("os_disk_placement")
    placements = has.get("SupportedEphemeralOSDiskPlacements", "")
    if wanted and placements and wanted not in placements.split(","):
        return f"supports OS disks on {placements}, not on {wanted}"
    return ""


def _quota(
    azure: ArmClient, offering: str, sku: Json | None, usages: Json, *, spot: bool
) -> CheckResult:
    """Check that one machine fits into the quota of Spot cores, or of the size's family."""
    name = f"quota of {offering}"
    size, _, region = offering.partition("@")
    quota = _SPOT_QUOTA if spot else str(sku["family"]) if sku else ""
    usage = usages.get(quota.lower())
    if usage is None:
        see = f"See: az vm list-usage -l {region} -o table"
        return doubt(name, f"ARM lists no quota {quota or 'for this size'}", see)
    left, needed = usage["limit"] - usage["currentValue"], cores(size, sku)
    kind = "Spot" if spot else quota
    found = f"{left} of {usage['limit']} {kind} cores free, {needed} for each machine"
    if left >= needed:
        return ok(name, found)
    kind, wanted = ("lowPriority" if spot else "dedicated"), usage["currentValue"] + needed
    scope = f"/subscriptions/{azure.subscription}/providers/Microsoft.Compute/locations/{region}"
    run = (
        f"Run: az quota update --resource-name {quota} --resource-type {kind} --scope {scope}"
        f" --limit-object value={wanted}"
    )
    return missing(name, found, run)


def cores(size: str, sku: Json | None) -> int:
    """Return the cores of one machine: as ARM lists the size, else by its name."""
    told = {c["name"]: c["value"] for c in sku["capabilities"]}.get("vCPUs") if sku else None
    in_name = re.search(r"[A-Za-z](\d+)", size.partition("_")[2])
    return int(told or (in_name[1] if in_name else 1))


def image(azure: ArmClient) -> Iterator[CheckResult]:
    """Check that the VM image exists in every region; a gallery image must be readable."""
    named = azure.setting("AZURE_IMAGE") or "microsoft-dsvm:ubuntu-hpc:2204:latest"
    if named.startswith("/"):
        yield _named(azure, "VM image", named)
        return
    publisher, offer, sku, version = named.split(":")
    for region in azure.regions:
        path = (
            f"/providers/Microsoft.Compute/locations/{region}/publishers/{publisher}"
            f"/artifacttypes/vmimage/offers/{offer}/skus/{sku}/versions"
        )
        see = f"See: az vm image list -l {region} -p {publisher} -f {offer} --all -o table"
        try:
            versions = [row["name"] for row in azure.get(path, _COMPUTE)]
        except httpx.HTTPStatusError as error:
            yield missing("VM image", f"{named} in {region}: {said(error)}", see)
            continue
        if versions and version in ("latest", *versions):
            yield ok("VM image", f"{named} in {region}")
        else:
            yield missing("VM image", f"version {version} does not exist in {region}", see)
    if not azure.regions:
        yield skipped("VM image", "REKINDLE_OFFERINGS names no region")
