"""What Azure refuses of a scale set's users, passwords, names, repairs and subnets.

Codes and words are from reports of Azure's answers: terraform issue 6542 and constellation 424
(passwords), azure-docs 27881 (user names), terraform-provider-azurerm 5860 (repairs), azure-cli
8569 (subnets). Names and lengths: Azure's reference of `VirtualMachineScaleSetOSProfile`.
"""

import re
from typing import Any

from emulator.compute.rules.scale_set_rules import subnets
from emulator.core.errors import invalid
from emulator.core.state import EmulatorState

RESERVED = {
    *("administrator", "admin", "user", "user1", "test", "user2", "test1", "user3", "admin1", "1"),
    *("123", "a", "actuser", "adm", "admin2", "aspnet", "backup", "console", "david", "guest"),
    *("john", "owner", "root", "server", "sql", "support", "support_388945a0", "sys", "test2"),
    *("test3", "user4", "user5"),
}


def is_weak(password: object, shortest: int, longest: int) -> bool:
    """Whether a password has a wrong length, or fewer than three of four kinds of characters."""
    text = password if isinstance(password, str) else ""
    varied = sum(bool(re.search(kind, text)) for kind in ("[A-Z]", "[a-z]", "[0-9]", r"[\W_]"))
    return not shortest <= len(text) <= longest or varied < 3


def check_password(profile: dict[str, Any]) -> None:
    """Raise ArmError for a password that is weak, before it is forgotten."""
    system = profile.get("osProfile") or {}
    shortest, longest = (8, 123) if system.get("windowsConfiguration") else (6, 72)
    if "adminPassword" in system and is_weak(system["adminPassword"], shortest, longest):
        raise invalid(
            f"The supplied password must be between {shortest}-{longest} characters long and must "
            "satisfy at least 3 of password complexity requirements.",
            target="adminPassword",
        )


def check(properties: dict[str, Any], profile: dict[str, Any]) -> None:
    """Raise ArmError for a reserved user, a Windows prefix too long, or repairs without a probe."""
    system = profile.get("osProfile") or {}
    if str(system.get("adminUsername")).lower() in RESERVED:
        raise invalid("The Admin Username specified is not allowed.", target="adminUsername")
    prefix = str(system.get("computerNamePrefix") or "")
    if system.get("windowsConfiguration") and (len(prefix) > 9 or prefix.isdecimal()):
        words = "Windows computer name prefix cannot be more than 9 characters long, or all digits."
        raise invalid(words, target="computerNamePrefix")
    repairs = properties.get("automaticRepairsPolicy")
    if isinstance(repairs, dict) and repairs.get("enabled") and not _has_health(profile):
        raise invalid(
            "Automatic repairs not supported for this Virtual Machine Scale Set because a health "
            "probe or health extension was not provided.",
            "BadRequest",
        )


def check_subnets(state: EmulatorState, scale_set_id: str, profile: dict[str, Any]) -> None:
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
