"""Check the subscription's providers, features, sizes, quota and VM image."""

import re
from collections.abc import Iterator
from typing import Any

import httpx

from rekindle.cli.diagnostics.arm_client import ArmClient, error_message
from rekindle.cli.diagnostics.check import (
    CheckResult,
    doubtful_check,
    failed_check,
    passed_check,
    skipped_check,
)

_PROVIDERS = ("Microsoft.Compute", "Microsoft.Network", "Microsoft.Storage")
_IDENTITIES = "Microsoft.ManagedIdentity"
_SPOT_QUOTA = "lowPriorityCores"
_AT_HOST = "providers/Microsoft.Features/providers/Microsoft.Compute/features/EncryptionAtHost"
_COMPUTE = "2024-07-01"
Json = dict[str, Any]


def check_providers(azure: ArmClient) -> Iterator[CheckResult]:
    """Check that each resource provider of scale sets is registered."""
    identities = (_IDENTITIES,) if azure.setting("AZURE_IDENTITY_ID") else ()
    for namespace in (*_PROVIDERS, *identities):
        yield check_provider(azure, namespace)


def check_provider(azure: ArmClient, namespace: str) -> CheckResult:
    """Check that a resource provider is registered."""
    name = f"provider {namespace}"
    state = azure.get(f"/providers/{namespace}", "2021-04-01")["registrationState"]
    if state == "Registered":
        return passed_check(name, "registered")
    return failed_check(name, state, f"Run: az provider register --namespace {namespace} --wait")


def check_encryption(azure: ArmClient) -> Iterator[CheckResult]:
    """Check that encryption at host is registered and that named resources exist."""
    if azure.policy("encryption_at_host"):
        state = azure.get(f"/{_AT_HOST}", "2021-07-01")["properties"]["state"]
        run = "Run: az feature register --namespace Microsoft.Compute --name EncryptionAtHost"
        is_registered = state == "Registered"
        yield (
            passed_check("encryption at host", state)
            if is_registered
            else failed_check("encryption at host", state, run)
        )
    for member, name in (
        ("disk_encryption_set_id", "disk encryption set"),
        ("proximity_placement_group_id", "placement group"),
    ):
        template = azure.policy(member) or ""
        for resource_id in azure.in_regions(template):
            if resource_id:
                yield _check_resource(azure, name, resource_id)


def _check_resource(azure: ArmClient, name: str, resource_id: str) -> CheckResult:
    try:
        azure.get_resource(resource_id, _COMPUTE)
    except httpx.HTTPError as error:
        return failed_check(
            name, error_message(error), azure.role_assignment_command("Reader", resource_id)
        )
    return passed_check(name, resource_id.rpartition("/")[2])


def check_sizes(azure: ArmClient) -> Iterator[CheckResult]:
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
        for size, offering_region, spot in azure.offerings:
            if offering_region == region:
                sku = machines.get(size.lower())
                yield _check_size(azure, f"size {size}@{region}", sku, region)
                yield _check_quota(azure, f"{size}@{region}", sku, free, spot=spot)


def _check_size(azure: ArmClient, name: str, sku: Json | None, region: str) -> CheckResult:
    see = f"Choose another. Run: az vm list-skus -l {region} --all -r virtualMachines -o table"
    if sku is None:
        return failed_check(name, f"is not sold in {region}", see)
    zone = (azure.policy("zones") or {}).get(region)
    for restriction in sku["restrictions"]:
        zones = restriction.get("restrictionInfo", {}).get("zones") or []
        if restriction["type"] == "Location" or zone in zones:
            where = f"zone {zone} of {region}" if zone in zones else region
            return failed_check(name, f"{restriction['reasonCode']} in {where}", see)
    if zone and zone not in sku["locationInfo"][0]["zones"]:
        return failed_check(name, f"is not sold in zone {zone} of {region}", see)
    if fault := _missing_feature(azure, {c["name"]: c["value"] for c in sku["capabilities"]}):
        return failed_check(name, fault, see)
    return passed_check(name, "sold to this subscription")


def _missing_feature(azure: ArmClient, capabilities: dict[str, str]) -> str:
    """Return which feature of the policy the size lacks; "" if none."""
    if azure.policy("security_type") == "TrustedLaunch" and "TrustedLaunchDisabled" in capabilities:
        return "does not support TrustedLaunch"
    if (
        azure.policy("encryption_at_host")
        and capabilities.get("EncryptionAtHostSupported") == "False"
    ):
        return "does not support encryption at host"
    if capabilities.get("EphemeralOSDiskSupported") == "False":
        return "does not support ephemeral OS disks"
    placement = azure.policy("os_disk_placement")
    placements = capabilities.get("SupportedEphemeralOSDiskPlacements", "")
    if placement and placements and placement not in placements.split(","):
        return f"supports OS disks on {placements}, not on {placement}"
    return ""


def _check_quota(
    azure: ArmClient, offering: str, sku: Json | None, usages: Json, *, spot: bool
) -> CheckResult:
    """Check that one machine fits into the quota of Spot cores, or of the size's family."""
    name = f"quota of {offering}"
    size, _, region = offering.partition("@")
    quota = _SPOT_QUOTA if spot else str(sku["family"]) if sku else ""
    usage = usages.get(quota.lower())
    if usage is None:
        see = f"See: az vm list-usage -l {region} -o table"
        return doubtful_check(name, f"ARM lists no quota {quota or 'for this size'}", see)
    free, needed = usage["limit"] - usage["currentValue"], machine_cores(size, sku)
    kind = "Spot" if spot else quota
    finding = f"{free} of {usage['limit']} {kind} cores free, {needed} for each machine"
    if free >= needed:
        return passed_check(name, finding)
    kind, new_limit = ("lowPriority" if spot else "dedicated"), usage["currentValue"] + needed
    scope = f"/subscriptions/{azure.subscription}/providers/Microsoft.Compute/locations/{region}"
    run = (
        f"Run: az quota update --resource-name {quota} --resource-type {kind} --scope {scope}"
        f" --limit-object value={new_limit}"
    )
    return failed_check(name, finding, run)


def machine_cores(size: str, sku: Json | None) -> int:
    """Return the cores of one machine: as ARM lists the size, else by its name."""
    listed = {c["name"]: c["value"] for c in sku["capabilities"]}.get("vCPUs") if sku else None
    in_name = re.search(r"[A-Za-z](\d+)", size.partition("_")[2])
    return int(listed or (in_name[1] if in_name else 1))


def check_image(azure: ArmClient) -> Iterator[CheckResult]:
    """Check that the VM image exists in every region; a gallery image must be readable."""
    name = azure.setting("AZURE_IMAGE") or "microsoft-dsvm:ubuntu-hpc:2204:latest"
    if name.startswith("/"):
        yield _check_resource(azure, "VM image", name)
        return
    publisher, offer, sku, version = name.split(":")
    for region in azure.regions:
        path = (
            f"/providers/Microsoft.Compute/locations/{region}/publishers/{publisher}"
            f"/artifacttypes/vmimage/offers/{offer}/skus/{sku}/versions"
        )
        see = f"See: az vm image list -l {region} -p {publisher} -f {offer} --all -o table"
        try:
            versions = [row["name"] for row in azure.get(path, _COMPUTE)]
        except httpx.HTTPStatusError as error:
            yield failed_check("VM image", f"{name} in {region}: {error_message(error)}", see)
            continue
        if versions and version in ("latest", *versions):
            yield passed_check("VM image", f"{name} in {region}")
        else:
            yield failed_check("VM image", f"version {version} does not exist in {region}", see)
    if not azure.regions:
        yield skipped_check("VM image", "REKINDLE_OFFERINGS names no region")
