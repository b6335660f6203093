"""What Azure refuses of a scale set's users, passwords, names, repairs and subnets.

Codes and words are from reports of Azure's answers: terraform issue 6542 and constellation 424
(passwords), azure-docs 27881 (user names), terraform-provider-azurerm 5860 (repairs), azure-cli
8569 (subnets). Names and lengths are from `VirtualMachineScaleSetOSProfile` in Azure's reference.
"""

import re
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
KINDS = (r"[A-Z]", r"[a-z]", r"[0-9]", r"[\W_]")
LONGEST_WINDOWS_PREFIX = 9
WINDOWS_PREFIX = re.compile(rf"(?!\d+$)[A-Za-z0-9-]{{1,{LONGEST_WINDOWS_PREFIX}}}")


def check(properties: dict[str, Any], profile: dict[str, Any]) -> None:
    """Raise ArmError for a reserved user, a Windows prefix too long, or repairs without a probe."""
    system = profile.get("osProfile") or {}
    if str(system.get("adminUsername")).lower() in RESERVED:
        raise invalid("The Admin Username specified is not allowed.", target="adminUsername")
    prefix = system.get("computerNamePrefix")
    if is_windows(profile) and prefix and not WINDOWS_PREFIX.fullmatch(prefix):
        raise invalid(
            f"Windows computer name prefix cannot be more than {LONGEST_WINDOWS_PREFIX} characters "
            "long, be entirely numeric, or contain other characters than letters, digits and "
            "hyphens.",
            target="computerNamePrefix",
        )
    repairs = properties.get("automaticRepairsPolicy")
    if isinstance(repairs, dict) and repairs.get("enabled") and not _has_health(profile):
        raise invalid(
            "Automatic repairs not supported for this Virtual Machine Scale Set because a health "
            "probe or health extension was not provided.",
            "BadRequest",
        )


def check_password(profile: dict[str, Any]) -> None:
    """Raise ArmError for a password that is weak, before it is forgotten."""
    password = (profile.get("osProfile") or {}).get("adminPassword")
    if password is None:
        return
    shortest, longest = (8, 123) if is_windows(profile) else (6, 72)
    varied = sum(bool(re.search(kind, password)) for kind in KINDS)
    if not shortest <= len(password) <= longest or varied < 3 or not password.isprintable():
        raise invalid(
            f"The supplied password must be between {shortest}-{longest} characters long and must "
            "satisfy at least 3 of password complexity requirements from the following:\r\n"
            "1) Contains an uppercase character\r\n2) Contains a lowercase character\r\n"
            "3) Contains a numeric digit\r\n4) Contains a special character\r\n"
            "5) Control characters are not allowed",
            target="adminPassword",
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


def is_windows(profile: dict[str, Any]) -> bool:
    """Whether the VMs are said to run Windows."""
    disk = (profile.get("storageProfile") or {}).get("osDisk") or {}
    system = profile.get("osProfile") or {}
    return bool(system.get("windowsConfiguration")) or disk.get("osType") == "Windows"


def _has_health(profile: dict[str, Any]) -> bool:
    network, extensions = profile.get("networkProfile") or {}, profile.get("extensionProfile")
    return bool(network.get("healthProbe")) or "applicationhealth" in str(extensions).lower()
