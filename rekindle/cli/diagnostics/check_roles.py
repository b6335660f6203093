"""Check that the service's identity has the permissions that the service needs.

ARM lists the permissions at each scope (Microsoft.Authorization/permissions). They are compared
with the actions below: those of the custom role in infra/main.json, grouped by the built-in role
that grants them. `tests/repository/documents/test_doctor.py` compares the two lists.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase
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


def check_group_roles(azure: ArmClient) -> Iterator[CheckResult]:
    """Check the resource group and the roles on it."""
    path = f"/resourceGroups/{azure.group}"
    try:
        azure.get(path, "2021-04-01")
    except httpx.HTTPError as error:
        remedy = f"Run: az group create -n {azure.group or 'NAME'} -l REGION"
        yield failed_check("resource group", error_message(error), remedy)
        return
    yield passed_check("resource group", azure.group)
    scope = f"/subscriptions/{azure.subscription}{path}"
    yield check_permissions(azure, "Virtual Machine Contributor", MACHINES, scope)
    subnet = azure.setting("AZURE_SUBNET_ID")
    for subnet_id in azure.in_regions(subnet) or [subnet.replace("{region}", "")]:
        yield check_permissions(azure, "Network Contributor", (JOIN,), subnet_id or scope)
    audit = check_permissions(azure, "Reader", AUDIT, scope)
    if audit.remedy:
        audit = doubtful_check(
            audit.name, f"{audit.found}; `rekindle audit` shows less", audit.remedy
        )
    yield audit


def check_subscription_role(azure: ArmClient) -> Iterator[CheckResult]:
    """Check the permissions that only a role on the subscription can grant."""
    scope = f"/subscriptions/{azure.subscription}"
    result = check_permissions(azure, "Reader", MARKET, scope)
    yield CheckResult(
        "role Reader of the subscription", result.verdict, result.found, result.remedy
    )


def check_identity_role(azure: ArmClient) -> Iterator[CheckResult]:
    """Check that the service may assign the nodes' identity to machines."""
    scope = azure.setting("AZURE_IDENTITY_ID")
    if not scope:
        why = "REKINDLE_AZURE_IDENTITY_ID is not set; nodes have no identity"
        yield skipped_check("role Managed Identity Operator", why)
        return
    yield check_permissions(azure, "Managed Identity Operator", (ASSIGN,), scope)


def check_permissions(
    azure: ArmClient, role: str, actions: tuple[str, ...], scope: str
) -> CheckResult:
    """Check that the identity may do all actions at the scope; ``role`` would grant them."""
    name = f"role {role}"
    try:
        permissions = azure.get_resource(f"{scope.rstrip('/')}/{_PERMISSIONS}", "2022-04-01")[
            "value"
        ]
    except httpx.HTTPError as error:
        return doubtful_check(
            name, f"cannot be read: {error_message(error)}", f"See: az resource show --ids {scope}"
        )
    denied = [action for action in actions if not _is_allowed(permissions, action)]
    if not denied:
        return passed_check(name, "granted")
    return failed_check(
        name, f"may not {', '.join(denied)}", azure.role_assignment_command(role, scope)
    )


def _is_allowed(permissions: list[dict[str, Any]], action: str) -> bool:
    """Return whether a role grants the action and does not exclude it, as ARM decides."""

    def matches(patterns: list[str]) -> bool:
        return any(fnmatchcase(action.lower(), pattern.lower()) for pattern in patterns)

    return any(
        matches(g.get("actions", [])) and not matches(g.get("notActions", [])) for g in permissions
    )
