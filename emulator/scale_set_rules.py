"""What Azure refuses in a scale set, in its codes and words."""

import base64
import binascii
import re
from decimal import Decimal
from typing import Any

from emulator.catalog import Offer
from emulator.errors import ArmError, invalid

NAME = re.compile(r"[^_\W][\w\-]{0,63}(?<!-)")
PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,57}")
CUSTOM_DATA = 87380  # base64 characters of 64 KiB
ANY_PRICE = Decimal(-1)
LARGEST_GROUP = 100  # instances in a single placement group
AKA = "For more information, see http://aka.ms/AzureSpot/errormessages."


def check(name: str, model: dict[str, Any], custom_data: str, offer: Offer) -> None:
    """Raise ArmError if Azure would refuse this model under this name."""
    properties = model["properties"]
    profile = properties.get("virtualMachineProfile") or {}
    _names(name, profile)
    _shape(model, properties)
    _subnets(profile)
    _keys(profile)
    _custom_data(custom_data)
    if profile.get("priority") in ("Spot", "Low"):
        _spot(profile, offer)
    else:
        _regular(properties, profile)


def _names(name: str, profile: dict[str, Any]) -> None:
    if not NAME.fullmatch(name):
        raise invalid(
            "The entity name 'vmScaleSetName' is invalid according to its validation rule: "
            f"^{NAME.pattern}$."
        )
    prefix = profile.get("osProfile", {}).get("computerNamePrefix", "vm")
    if not PREFIX.fullmatch(prefix):
        raise invalid(
            f"Linux host name '{prefix}' cannot exceed 58 characters in length or contain other "
            "characters than letters, digits and hyphens."
        )


def _shape(model: dict[str, Any], properties: dict[str, Any]) -> None:
    if properties.get("orchestrationMode", "Uniform") != "Uniform":
        raise invalid("The emulator has no Flexible scale sets: set orchestrationMode to Uniform.")
    if "mode" not in (properties.get("upgradePolicy") or {}):
        raise invalid("Required parameter 'upgradePolicy' is missing (null).")
    if "priorityMixPolicy" in properties:
        raise invalid(
            "PriorityMixPolicy is only supported for Virtual Machine Scale Sets with Flexible "
            "orchestration mode.",
            "BadRequest",
        )
    capacity = model["sku"].get("capacity")
    if not isinstance(capacity, int) or capacity < 0:
        raise invalid("The value of parameter sku.capacity is invalid.")
    if properties.get("singlePlacementGroup", True) and capacity > LARGEST_GROUP:
        raise invalid(
            f"The capacity {capacity} exceeds {LARGEST_GROUP}, the most that a scale set with a "
            "single placement group may have."
        )


def _subnets(profile: dict[str, Any]) -> None:
    """Every address that names a subnet must name one in full."""
    network = profile.get("networkProfile") or {}
    for card in network.get("networkInterfaceConfigurations") or []:
        for address in (card.get("properties") or {}).get("ipConfigurations") or []:
            subnet = (address.get("properties") or {}).get("subnet")
            if subnet is not None and not str(subnet.get("id") or "").startswith("/"):
                raise invalid(
                    f"Property id '{subnet.get('id') or ''}' of the subnet is invalid. Expect "
                    "fully qualified resource Id that start with '/subscriptions/{id}' or "
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


def _custom_data(text: str) -> None:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        text = "" if not text else "x" * (CUSTOM_DATA + 1)
    if len(text) > CUSTOM_DATA:
        raise invalid(
            "Custom data in OSProfile must be in Base64 encoding and with a maximum length of "
            f"{CUSTOM_DATA} characters."
        )


def _spot(profile: dict[str, Any], offer: Offer) -> None:
    disk = (profile.get("storageProfile") or {}).get("osDisk") or {}
    if disk.get("diffDiskSettings") and profile.get("evictionPolicy") != "Delete":
        raise invalid(
            "Azure Spot Virtual Machine Scale Sets with ephemeral OS disk support only 'Delete' "
            f"evictionPolicy. {AKA}",
            "BadRequest",
        )
    events = profile.get("scheduledEventsProfile") or {}
    if (events.get("terminateNotificationProfile") or {}).get("enable"):
        raise invalid("Terminate notifications cannot be enabled on Spot instances.", "BadRequest")
    _max_price((profile.get("billingProfile") or {}).get("maxPrice", -1), offer)


def _max_price(given: float, offer: Offer) -> None:
    price = Decimal(str(given))
    if price == ANY_PRICE:
        return
    if price <= 0:
        raise invalid(
            "The max price value is invalid. The only supported values for max price are -1 or a "
            f"decimal greater than zero. {AKA}",
            "MaxPriceValueInvalid",
        )
    if price < offer.spot:
        raise ArmError(
            409,
            "SpotPriceGreaterThanProvidedMaxPrice",
            "Unable to perform operation 'Create or Update Virtual Machine Scale Set' since the "
            f"provided max price '{price} USD' is lower than the current spot price "
            f"'{offer.spot} USD' for Azure Spot VM size '{offer.size.name}'. {AKA}",
        )


def _regular(properties: dict[str, Any], profile: dict[str, Any]) -> None:
    if profile.get("evictionPolicy"):
        raise invalid(
            f"Eviction policy can be set only on Azure Spot Virtual Machines. {AKA}",
            "EvictionPolicyCanBeSetOnlyOnAzureSpotVirtualMachines",
        )
    if (properties.get("spotRestorePolicy") or {}).get("enabled"):
        raise invalid(
            "Spot restoration is supported only for Azure Spot scale sets.",
            "SpotRestorationIsSupportedOnlyForAzureSpotScaleSets",
        )
