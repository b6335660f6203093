"""What Azure refuses in a scale set, in its codes and words.

The model has been through `scale_set_form` before: members are of their types, or null.
"""

import base64
import binascii
import re
from typing import Any

from emulator.compute.rules import flexible_rules, profile_rules, spot_rules
from emulator.core.catalog import SizeOffer
from emulator.core.errors import invalid, missing

NAME = re.compile(r"[^_\W][\w\-]{0,63}(?<!-)")
PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,57}")
CUSTOM_DATA = 87380  # base64 characters of 64 KiB
LARGEST_GROUP = 100  # instances in a single placement group
LARGEST_SET = 1000
FAULT_DOMAINS = range(1, 6)


def check(name: str, model: dict[str, Any], custom_data: str, offer: SizeOffer) -> None:
    """Raise ArmError if Azure would refuse this model under this name."""
    properties = model["properties"]
    profile = properties.get("virtualMachineProfile") or {}
    profile_rules.check(properties, profile)
    _names(name, profile)
    _shape(model, properties)
    _zones(name, model, offer)
    flexible_rules.check(name, model, profile)
    _check_subnets(profile)
    _keys(profile)
    _encoded(custom_data, "Custom data in OSProfile")
    _encoded(profile.get("userData") or "", "User data in VirtualMachineProfile")
    spot_rules.check(profile, offer)


def _names(name: str, profile: dict[str, Any]) -> None:
    if not NAME.fullmatch(name):
        raise invalid(
            "The entity name 'vmScaleSetName' is invalid according to its validation rule: "
            f"^{NAME.pattern}$."
        )
    prefix = (profile.get("osProfile") or {}).get("computerNamePrefix")
    if not PREFIX.fullmatch("vm" if prefix is None else prefix):
        raise invalid(
            f"Linux host name '{prefix}' cannot exceed 58 characters in length or contain other "
            "characters than letters, digits and hyphens."
        )


def _shape(model: dict[str, Any], properties: dict[str, Any]) -> None:
    uniform = properties.get("orchestrationMode") != "Flexible"
    if uniform and not (properties.get("upgradePolicy") or {}).get("mode"):
        raise missing("upgradePolicy")
    capacity = model["sku"].get("capacity")
    if not isinstance(capacity, int) or capacity < 0:
        raise invalid("The value of parameter sku.capacity is invalid.", target="sku.capacity")
    single = properties.get("singlePlacementGroup")
    if single and capacity > LARGEST_GROUP:
        raise invalid(
            f"The capacity {capacity} exceeds {LARGEST_GROUP}, the most that a scale set with a "
            "single placement group may have."
        )
    if capacity > LARGEST_SET:
        raise invalid(
            f"The capacity {capacity} exceeds {LARGEST_SET}, the most that a scale set may have."
        )
    domains = properties.get("platformFaultDomainCount")
    if domains is not None and domains not in FAULT_DOMAINS:
        raise invalid(
            f"The specified fault domain count {domains} must fall in the range "
            f"{FAULT_DOMAINS[0]} to {FAULT_DOMAINS[-1]}.",
            target="platformFaultDomainCount",
        )


def _zones(name: str, model: dict[str, Any], offer: SizeOffer) -> None:
    bad = [zone for zone in model.get("zones") or [] if zone not in offer.zones]
    if bad:
        raise invalid(
            f"The zone(s) '{','.join(bad)}' for resource "
            f"'Microsoft.Compute/virtualMachineScaleSets/{name}' is not supported. The supported "
            f"zones for location '{offer.location}' are '{','.join(offer.zones)}'",
            "AvailabilityZoneNotSupported",
        )


def subnets(profile: dict[str, Any]) -> list[str]:
    """Return the ids of the subnets that addresses name; "" where a subnet has none."""
    network = profile.get("networkProfile") or {}
    return [
        str(subnet.get("id") or "")
        for card in network.get("networkInterfaceConfigurations") or []
        for address in (card.get("properties") or {}).get("ipConfigurations") or []
        if (subnet := (address.get("properties") or {}).get("subnet")) is not None
    ]


def _check_subnets(profile: dict[str, Any]) -> None:
    """Every address that names a subnet must name one in full."""
    for name in subnets(profile):
        if not name.startswith("/"):
            raise invalid(
                f"Property id '{name}' of the subnet is invalid. Expect fully qualified resource "
                "Id that start with '/subscriptions/{id}' or "
                "'/providers/{resourceProviderNamespace}/'.",
                "LinkedInvalidPropertyId",
            )


def _keys(profile: dict[str, Any]) -> None:
    linux = (profile.get("osProfile") or {}).get("linuxConfiguration") or {}
    for key in (linux.get("ssh") or {}).get("publicKeys") or []:
        if not str(key.get("keyData") or "").startswith("ssh-"):
            raise invalid(
                "The value of parameter linuxConfiguration.ssh.publicKeys.keyData is invalid."
            )


def _encoded(text: str, what: str) -> None:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        text = "" if not text else "x" * (CUSTOM_DATA + 1)
    if len(text) > CUSTOM_DATA:
        raise invalid(
            f"{what} must be in Base64 encoding and with a maximum length of "
            f"{CUSTOM_DATA} characters."
        )
