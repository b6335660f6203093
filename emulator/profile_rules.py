"""What Azure refuses of a scale set's users, repairs and subnets.

Codes and words are from reports of Azure's answers: azure-docs 27881 (user names),
terraform-provider-azurerm 5860 (repairs), azure-cli 8569 (subnets). Names are from
`VirtualMachineScaleSetOSProfile` in Azure's reference.
"""

from typing import Any

from emulator.errors import invalid
from emulator.scale_set_rules import subnets
from emulator.state import State

RESERVED = {
    *("administrator", "admin", "user", "user1", "test", "user2", "test1", "user3", "admin1", "1"),
    *("123", "a", "actuser", "adm", "admin2", "aspnet", "backup", "console", "david", "guest"),
    *("john", "owner", "root", "server", "sql", "support", "support_388945a0", "sys", "test2"),
    *("test3", "user4", "user5"),
}


def check(properties: dict[str, Any], profile: dict[str, Any]) -> None:
    """Raise ArmError for a reserved user, or for repairs without a probe."""
    system = profile.get("osProfile") or {}
    if str(system.get("adminUsername")).lower() in RESERVED:
        raise invalid("The Admin Username specified is not allowed.", target="adminUsername")
    repairs = properties.get("automaticRepairsPolicy")
    if isinstance(repairs, dict) and repairs.get("enabled") and not _has_health(profile):
        raise invalid(
            "Automatic repairs not supported for this Virtual Machine Scale Set because a health "
            "probe or health extension was not provided.",
            "BadRequest",
        )


def check_subnets(state: State, scale_set_id: str, profile: dict[str, Any]) -> None:
    """Raise ArmError for a subnet that its network lacks.

    A network that was never put here is believed to be elsewhere: the local stack has none.
    """
    for name in subnets(profile):
        network = state.resources.get(name.lower().rpartition("/subnets/")[0])
        wanted = name.rpartition("/")[2].lower()
        if network is None:
            continue
        there = network.body["properties"].get("subnets") or []
        if wanted not in [str(row.get("name")).lower() for row in there]:
            raise invalid(
                f"Resource {name} referenced by resource {scale_set_id} was not found. Please make "
                "sure that the referenced resource exists, and that both resources are in the same "
                "region.",
                "InvalidResourceReference",
            )


def _has_health(profile: dict[str, Any]) -> bool:
    network, extensions = profile.get("networkProfile") or {}, profile.get("extensionProfile")
    return bool(network.get("healthProbe")) or "applicationhealth" in str(extensions).lower()
