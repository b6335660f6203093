"""What Azure refuses of Spot instances, and of others for lack of being Spot."""

import re
from decimal import Decimal
from typing import Any

from emulator.core.catalog import SizeOffer
from emulator.core.errors import ArmError, invalid

AKA = "For more information, see http://aka.ms/AzureSpot/errormessages."
ANY_PRICE = Decimal(-1)
NEVER_SPOT = re.compile(r"Standard_B\d.*|.*_Promo", re.IGNORECASE)


def check_size(profile: dict[str, Any], size: str) -> None:
    """Raise ArmError for a size that is never sold as Spot."""
    if profile.get("priority") in ("Spot", "Low") and NEVER_SPOT.fullmatch(size):
        raise invalid(
            f"Azure Spot Virtual Machine is not supported for this VM size {size}. {AKA}",
            "AzureSpotIsNotSupportedForThisVMSize",
        )


def check(profile: dict[str, Any], offer: SizeOffer) -> None:
    """Raise ArmError for what does not go with the priority."""
    if profile.get("priority") not in ("Spot", "Low"):
        _regular(profile)
        return
    disk = (profile.get("storageProfile") or {}).get("osDisk") or {}
    if disk.get("diffDiskSettings") and profile.get("evictionPolicy") != "Delete":
        raise invalid(
            "Azure Spot Virtual Machine Scale Sets with ephemeral OS disk support only 'Delete' "
            f"evictionPolicy. {AKA}",
            "BadRequest",
        )
    _max_price(max_price(profile), offer)


def max_price(profile: dict[str, Any]) -> Decimal:
    """Return the maximum price in US dollars per hour; -1 for any price."""
    given = (profile.get("billingProfile") or {}).get("maxPrice")
    return ANY_PRICE if given is None else Decimal(str(given))


def _max_price(price: Decimal, offer: SizeOffer) -> None:
    if price == ANY_PRICE:
        return
    if price <= 0:
        raise invalid(
            "Invalid max price value. The only supported values for max price are -1 or a decimal "
            "greater than zero. Max price value of -1 indicates the Azure Spot Virtual Machine "
            f"will not be evicted for price reasons. {AKA}",
            "MaxPriceValueInvalid",
        )
    if price < offer.spot:
        raise ArmError(
            409,
            "SpotPriceGreaterThanProvidedMaxPrice",
            "Unable to perform operation 'Create or Update Virtual Machine Scale Set' since the "
            f"provided max price '{price} USD' is lower than the current spot price "
            f"'{offer.spot} USD' for Azure Spot Virtual Machine size '{offer.size.name}'. {AKA}",
        )


def _regular(profile: dict[str, Any]) -> None:
    if profile.get("evictionPolicy"):
        raise invalid(
            f"Eviction policy can be set only on Azure Spot Virtual Machines. {AKA}",
            "EvictionPolicyCanBeSetOnlyOnAzureSpotVirtualMachines",
        )
    if max_price(profile) != ANY_PRICE:
        raise invalid(
            f"Max price is supported only for Azure Spot Virtual Machines. {AKA}",
            "MaxPriceIsSupportedOnlyForAzureSpotVirtualMachines",
        )
