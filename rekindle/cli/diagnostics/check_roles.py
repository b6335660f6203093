"""Check that the service's identity has the permissions that the service needs.

ARM lists the permissions at each scope (Microsoft.Authorization/permissions). They are compared
with the actions below: those of the custom role in infra/main.json, grouped by the built-in role
that grants them. `tests/repository/documents/test_doctor.py` compares the two lists.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import httpx

from rekindle.cli.diagnostics.arm_client import ArmClient, said
from rekindle.cli.diagnostics.check import CheckResult, doubt, missing, ok, skipped

_SETS = "Microsoft.Compute/virtualMachineScaleSets"
JOIN = "Microsoft.Network/virtualNetworks/subnets/join/action"
ASSIGN = "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action"
MACHINES = (
    f"{_SETS}/read",
    f"{_SETS}/write",
    f"{_SETS}/delete",
    f"{_SETS}/delete/action",
    f"{_SETS}/instanceView/read",
    f"{_SETS}/virtualMachines/read",
    f"{_SETS}/virtualMachines/retrieveBootDiagnosticsData/action",
)
AUDIT = (  # optional: `rekindle audit` shows less without them
    "Microsoft.Resources/subscriptions/resourcegroups/resources/read",
    "Microsoft.Compute/disks/read",
    "Microsoft.Compute/snapshots/read",
    "Microsoft.Compute/virtualMachines/read",
    "Microsoft.Network/networkInterfaces/read",
    "Microsoft.Network/networkSecurityGroups/read",
    "Microsoft.Network/publicIPAddresses/read",
)
MARKET = (  # of the subscription: usage, sizes, eviction rates and Spot prices
    "Microsoft.Compute/locations/usages/read",
    "Microsoft.Compute/skus/read",
    "Microsoft.Resources/subscriptions/providers/read",
)
_PERMISSIONS = "providers/Microsoft.Authorization/permissions"


def group(azure: ArmClient) -> Iterator[CheckResult]:
    """Check the resource group and the roles on it."""
    path = f"/resourceGroups/{azure.group}"
    try:
        azure.get(path, "2021-04-01")
    except httpx.HTTPError as error:
        remedy = f"Run: az group create -n {azure.group or 'NAME'} -l REGION"
        yield missing("resource group", said(error), remedy)
        return
    yield ok("resource group", azure.group)
    scope = f"/subscriptions/{azure.subscription}{path}"
    yield granted(azure, "Virtual Machine Contributor", MACHINES, scope)
    subnet = azure.setting("AZURE_SUBNET_ID")
    for place in dict.fromkeys(subnet.replace("{region}", r) for r in azure.regions or [""]):
        yield granted(azure, "Network Contributor", (JOIN,), place or scope)
    audit = granted(azure, "Reader", AUDIT, scope)
    if audit.remedy:
        audit = doubt(audit.name, f"{audit.found}; `rekindle audit` shows less", audit.remedy)
    yield audit


def subscription(azure: ArmClient) -> Iterator[CheckResult]:
    """Check the permissions that only a role on the subscription can grant."""
    scope = f"/subscriptions/{azure.subscription}"
    found = granted(azure, "Reader", MARKET, scope)
    yield CheckResult("role Reader of the subscription", found.verdict, found.found, found.remedy)


def identity(azure: ArmClient) -> Iterator[CheckResult]:
    """Check that the service may assign the nodes' identity to machines."""
    scope = azure.setting("AZURE_IDENTITY_ID")
    if not scope:
        why = "REKINDLE_AZURE_IDENTITY_ID is not set; nodes have no identity"
        yield skipped("role Managed Identity Operator", why)
        return
    yield granted(azure, "Managed Identity Operator", (ASSIGN,), scope)


def granted(azure: ArmClient, role: str, actions: tuple[str, ...], scope: str) -> CheckResult:
    """Check that the identity may do all actions at the scope; ``role`` would grant them."""
    name = f"role {role}"
    try:
        held = azure.get_id(f"{scope.rstrip('/')}/{_PERMISSIONS}", "2022-04-01")["value"]
    except httpx.HTTPError as error:
        return doubt(name, f"cannot be read: {said(error)}", f"See: az resource show --ids {scope}")
    absent = [action for action in actions if not _may(held, action)]
    if not absent:
        return ok(name, "granted")
    return missing(name, f"may not {', '.join(absent)}", azure.assign(role, scope))


def _may(held: list[dict[str, Any]], action: str) -> bool:
    """Return whether a role grants the action and does not exclude it, as ARM decides."""

    def within(patterns: list[str]) -> bool:
        return any(fnmatchcase(action.lower(), pattern.lower()) for pattern in patterns)

    return any(within(g.get("actions", [])) and not within(g.get("notActions", [])) for g in held)
