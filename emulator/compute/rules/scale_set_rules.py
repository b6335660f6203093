"""What Azure refuses in a scale set, as a table: the first rule that is broken gives the answer.

The model has been through `scale_set_form` before: members are of their types, or null.

Codes and words are from reports of Azure's answers: terraform issue 6542 and constellation 424
(passwords), azure-docs 27881 (user names), terraform-provider-azurerm 5860 (repairs), azure-cli
8569 (subnets), bosh-azure-cpi-release 674 (disk too large), Azure's
terraform-azurerm-avm-res-compute-virtualmachinescaleset 160 (placement), azure-cli 16788
(encryption at host) and 18355 (disk encryption set), skyplane 755 (security type). No report shows
the HTTP status of `NotSupported`: a conflict is a guess, and so are the words for placement groups.
Names and lengths: Azure's reference of `VirtualMachineScaleSetOSProfile`.
"""

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Any

from emulator.arm import registrations
from emulator.core.catalog import SizeOffer
from emulator.core.errors import MISSING, invalid
from emulator.core.rules import Rule, check_rules
from emulator.core.state import ANY_PRICE, EmulatorState, ScaleSetRow

AKA = "For more information, see http://aka.ms/AzureSpot/errormessages."
NAME = re.compile(r"[^_\W][\w\-]{0,63}(?<!-)")
PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,57}")
LONGEST_DATA = 87380  # base64 characters of 64 KiB
LARGEST_GROUP = 100  # instances in a single placement group
LARGEST_SET = 1000
LARGEST_DISK = 2040  # GiB of an ephemeral OS disk
AT_HOST = "EncryptionAtHost"
RESERVED = {
    *("administrator", "admin", "user", "user1", "test", "user2", "test1", "user3", "admin1", "1"),
    *("123", "a", "actuser", "adm", "admin2", "aspnet", "backup", "console", "david", "guest"),
    *("john", "owner", "root", "server", "sql", "support", "support_388945a0", "sys", "test2"),
    *("test3", "user4", "user5"),
}


@dataclass(frozen=True)
class ProposedScaleSet:
    """A scale set as it is asked for, and the offer of its size at the Spot price of now."""

    state: EmulatorState
    row: ScaleSetRow
    offer: SizeOffer

    def at(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """Return the member of the properties at a dotted path; None where a part is missing."""
        value: Any = self.row.model["properties"]
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def vm(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """Return the member of the virtual machine profile at a dotted path, or None."""
        return self.at(f"virtualMachineProfile.{path}")

    @property
    def capacity(self) -> Any:  # noqa: ANN401 - JSON
        """The wanted number of instances, as it came."""
        return self.row.model["sku"].get("capacity")

    @property
    def subnets(self) -> list[str]:
        """The ids of the subnets that addresses name; "" where a subnet has none."""
        return [
            str(subnet.get("id") or "")
            for card in self.vm("networkProfile.networkInterfaceConfigurations") or []
            for address in (card.get("properties") or {}).get("ipConfigurations") or []
            if (subnet := (address.get("properties") or {}).get("subnet")) is not None
        ]

    @property
    def placement(self) -> str:
        """The placement of the ephemeral OS disk; empty without one."""
        settings = self.vm("storageProfile.osDisk.diffDiskSettings") or {}
        usual = self.offer.size.os_disks.partition(",")[0]
        return str(settings.get("placement") or usual) if settings else ""

    @property
    def trusted(self) -> bool:
        """Whether the VMs are to have a virtual TPM."""
        return bool(self.vm("securityProfile.securityType") == "TrustedLaunch")

    @property
    def largest_disk(self) -> int:
        """The most GiB of an ephemeral OS disk; Azure keeps 1 GiB for a virtual TPM."""
        return min(self.offer.size.temp_gib, LARGEST_DISK) - self.trusted

    @property
    def zones(self) -> str:
        """The zones of the region that have the size."""
        return ",".join(self.offer.zones)


def check(state: EmulatorState, scale_set: ScaleSetRow, offer: SizeOffer) -> None:
    """Raise ArmError if Azure would refuse this scale set."""
    check_rules(RULES, ProposedScaleSet(state, scale_set, offer))


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


def _has_bad_windows_name(w: ProposedScaleSet) -> bool:
    prefix = str(w.vm("osProfile.computerNamePrefix") or "")
    windows = w.vm("osProfile.windowsConfiguration")
    return bool(windows) and (len(prefix) > 9 or prefix.isdecimal())


def _repairs_blindly(w: ProposedScaleSet) -> bool:
    probed = w.vm("networkProfile.healthProbe")
    has_health_extension = "applicationhealth" in str(w.vm("extensionProfile")).lower()
    return bool(w.at("automaticRepairsPolicy.enabled")) and not probed and not has_health_extension


def _bad_prefix(w: ProposedScaleSet) -> list[str]:
    prefix = w.vm("osProfile.computerNamePrefix")
    return [] if prefix is None or PREFIX.fullmatch(prefix) else [prefix]


def _bad_domains(w: ProposedScaleSet) -> list[int]:
    count = w.at("platformFaultDomainCount")
    return [] if count is None or 1 <= count <= 5 else [count]


def _foreign_zones(w: ProposedScaleSet) -> list[str]:
    unsupported = [zone for zone in w.row.model.get("zones") or [] if zone not in w.offer.zones]
    return [",".join(unsupported)] if unsupported else []


def _bad_keys(w: ProposedScaleSet) -> list[Any]:
    keys = w.vm("osProfile.linuxConfiguration.ssh.publicKeys") or []
    return [key for key in keys if not str(key.get("keyData") or "").startswith("ssh-")]


def _is_bad_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return bool(text)
    return len(text) > LONGEST_DATA


def _lost_subnets(w: ProposedScaleSet) -> list[str]:
    """Return the subnets that their networks lack.

    A network that was never put here is believed to be elsewhere: the local stack has none.
    """
    missing = []
    for name in w.subnets:
        network = w.state.resources.get(name.lower().rpartition("/subnets/")[0])
        rows = network.body["properties"].get("subnets") or [] if network else []
        existing = [str(row.get("name")).lower() for row in rows]
        if network and name.rpartition("/")[2].lower() not in existing:
            missing.append(name)
    return missing


def _lost_encryption_set(w: ProposedScaleSet) -> str:
    named = str(w.vm("storageProfile.osDisk.managedDisk.diskEncryptionSet.id") or "")
    resource = w.state.resources.get(named.lower())
    return "" if resource and resource.location == w.row.location else named


def _lost_group(w: ProposedScaleSet) -> str:
    named = str(w.at("proximityPlacementGroup.id") or "")
    return "" if named.lower() in w.state.resources else named


_BASE64 = f"must be in Base64 encoding and with a maximum length of {LONGEST_DATA} characters."
RULES: tuple[Rule[ProposedScaleSet], ...] = (
    # Names
    Rule(lambda w: str(w.vm("osProfile.adminUsername")).lower() in RESERVED,
         "The Admin Username specified is not allowed.", target="adminUsername"),
    Rule(_has_bad_windows_name,
         "Windows computer name prefix cannot be more than 9 characters long, or all digits.",
         target="computerNamePrefix"),
    Rule(_repairs_blindly,
         "Automatic repairs not supported for this Virtual Machine Scale Set because a health "
         "probe or health extension was not provided.", "BadRequest"),
    Rule(lambda w: not NAME.fullmatch(w.row.name),
         "The entity name 'vmScaleSetName' is invalid according to its validation rule: "
         "^" + NAME.pattern.replace("{", "{{").replace("}", "}}") + "$."),
    Rule(_bad_prefix,
         "Linux host name '{0[0]}' cannot exceed 58 characters in length or contain other "
         "characters than letters, digits and hyphens."),
    # Shape
    Rule(lambda w: "upgradePolicy" if not w.row.flexible and not w.at("upgradePolicy.mode") else "",
         MISSING, target="upgradePolicy"),
    Rule(lambda w: not isinstance(w.capacity, int) or w.capacity < 0,
         "The value of parameter sku.capacity is invalid.", target="sku.capacity"),
    Rule(lambda w: w.at("singlePlacementGroup") and w.capacity > LARGEST_GROUP,
         f"The capacity {{w.capacity}} exceeds {LARGEST_GROUP}, the most that a scale set with a "
         "single placement group may have."),
    Rule(lambda w: w.capacity > LARGEST_SET,
         f"The capacity {{w.capacity}} exceeds {LARGEST_SET}, the most that a scale set may have."),
    Rule(_bad_domains,
         "The specified fault domain count {0[0]} must fall in the range 1 to 5.",
         target="platformFaultDomainCount"),
    Rule(_foreign_zones,
         "The zone(s) '{0[0]}' for resource 'Microsoft.Compute/virtualMachineScaleSets/{w.row.name}"
         "' is not supported. The supported zones for location '{w.offer.location}' are "
         "'{w.zones}'", "AvailabilityZoneNotSupported"),
    # What only one orchestration mode has
    Rule(lambda w: w.row.flexible and w.at("overprovision"),
         "Parameter 'overprovision' is not allowed.", target="overprovision"),
    Rule(lambda w: w.row.flexible and w.at("platformFaultDomainCount") is None
         and "platformFaultDomainCount",
         MISSING, target="platformFaultDomainCount"),
    Rule(lambda w: w.row.flexible and w.vm("networkProfile.networkInterfaceConfigurations")
         and not w.vm("networkProfile.networkApiVersion"),
         "Network api version in network profile of virtual machine {w.row.name} must be specified "
         "if network interface configurations are specified.",
         "NetworkApiVersionMustBeSpecifiedWithNetworkInterfaceConfigurations"),
    Rule(lambda w: w.row.flexible
         and "SystemAssigned" in ((w.row.model.get("identity") or {}).get("type") or ""),
         "Virtual Machine Scale Sets with Flexible orchestration mode support only "
         "user-assigned identities.", "BadRequest", "identity"),
    Rule(lambda w: w.at("priorityMixPolicy") is not None,
         "This emulator does not offer priorityMixPolicy: make two scale sets.", "BadRequest"),
    # Subnets, keys and data
    Rule(lambda w: [name for name in w.subnets if not name.startswith("/")],
         "Property id '{0[0]}' of the subnet is invalid. Expect fully qualified resource Id that "
         "start with '/subscriptions/{{id}}' or '/providers/{{resourceProviderNamespace}}/'.",
         "LinkedInvalidPropertyId"),
    Rule(_bad_keys, "The value of parameter linuxConfiguration.ssh.publicKeys.keyData is invalid."),
    Rule(lambda w: _is_bad_base64(w.row.custom_data), f"Custom data in OSProfile {_BASE64}"),
    Rule(lambda w: _is_bad_base64(w.vm("userData") or ""),
         f"User data in VirtualMachineProfile {_BASE64}"),
    # Spot
    Rule(lambda w: not w.row.spot and w.vm("evictionPolicy"),
         f"Eviction policy can be set only on Azure Spot Virtual Machines. {AKA}",
         "EvictionPolicyCanBeSetOnlyOnAzureSpotVirtualMachines"),
    Rule(lambda w: not w.row.spot and w.row.max_price != ANY_PRICE,
         f"Max price is supported only for Azure Spot Virtual Machines. {AKA}",
         "MaxPriceIsSupportedOnlyForAzureSpotVirtualMachines"),
    Rule(lambda w: w.row.spot and w.row.ephemeral and w.vm("evictionPolicy") != "Delete",
         "Azure Spot Virtual Machine Scale Sets with ephemeral OS disk support only 'Delete' "
         f"evictionPolicy. {AKA}", "BadRequest"),
    Rule(lambda w: w.row.max_price <= 0 and w.row.max_price != ANY_PRICE,
         "Invalid max price value. The only supported values for max price are -1 or a decimal "
         "greater than zero. Max price value of -1 indicates the Azure Spot Virtual Machine "
         f"will not be evicted for price reasons. {AKA}", "MaxPriceValueInvalid"),
    Rule(lambda w: w.row.spot and 0 < w.row.max_price < w.offer.spot,
         "Unable to perform operation 'Create or Update Virtual Machine Scale Set' since the "
         "provided max price '{w.row.max_price} USD' is lower than the current spot price "
         "'{w.offer.spot} USD' for Azure Spot Virtual Machine size '{w.offer.size.name}'. " + AKA,
         "SpotPriceGreaterThanProvidedMaxPrice", status=409),
    # What the size or the subscription does not have
    Rule(_lost_subnets,
         "Resource {0[0]} referenced by resource {w.row.id} was not found. Please make sure that "
         "the referenced resource exists, and that both resources are in the same region.",
         "InvalidResourceReference"),
    Rule(lambda w: not registrations.has_provider(w.state, w.row.subscription, "Microsoft.Compute"),
         "The subscription is not registered to use namespace 'Microsoft.Compute'. See "
         "https://aka.ms/rps-not-found for how to register subscriptions.",
         "MissingSubscriptionRegistration", status=409),
    Rule(lambda w: w.trusted and not w.offer.size.trusted_launch,
         "The VM size '{w.offer.size.name}' is not supported for creation of VMs and Virtual "
         "Machine Scale Set with 'TrustedLaunch' security type.", "BadRequest"),
    Rule(lambda w: w.vm("securityProfile.encryptionAtHost")
         and not registrations.has_feature(w.state, w.row.subscription, AT_HOST),
         "The property 'securityProfile.encryptionAtHost' is not valid because the "
         f"'Microsoft.Compute/{AT_HOST}' feature is not enabled for this subscription.",
         target="securityProfile.encryptionAtHost"),
    Rule(_lost_encryption_set, "DiskEncryptionSet '{0}' was not found.", "BadRequest"),
    Rule(lambda w: w.placement and w.placement not in w.offer.size.os_disks.split(","),
         "The Diff Disk Placement of type '{w.placement}' is not supported for VM size "
         "{w.offer.size.name}.", "NotSupported", status=409),
    Rule(lambda w: w.placement
         and (w.vm("storageProfile.osDisk.diskSizeGB") or 0) > w.largest_disk,
         "OS disk of Ephemeral VM with size greater than {w.largest_disk} GB is not allowed for "
         "VM size {w.offer.size.name} when the DiffDiskPlacement is {w.placement}. Please refer "
         "to https://aka.ms/Ephemeral for more details.", "NotSupported", status=409),
    Rule(_lost_group, "ProximityPlacementGroup '{0}' was not found.", "BadRequest"),
)  # fmt: skip
