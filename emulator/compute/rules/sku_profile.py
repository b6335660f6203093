"""Instance mix: a Flexible scale set whose `skuProfile` names several VM sizes.

Codes and words are Microsoft's, "Virtual machine scale sets with instance mix frequently asked
questions and troubleshooting". A rank counts from 0, lower first, and with Prioritized alone
(reference of `SkuMixPlacementVMSize`). What Azure says to ranks without it, and to a mix on a
Uniform scale set, is not known: those words are ours.

Here all machines of a scale set are of one size: the first, in the order of the strategy, that can
be had when the scale set is put and has no machines. CapacityOptimized takes them as they come.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from emulator.core.catalog import catalog
from emulator.core.errors import invalid
from emulator.core.state import ScaleSetRow

STRATEGIES = ("LowestPrice", "CapacityOptimized", "Prioritized")  # the first where none is named
WITHOUT = ("hostGroup", "standbyPoolProfile", "capacityReservation")


def sizes(scale_set: ScaleSetRow) -> list[str]:
    """Return the sizes to try, best first ([""] without a mix), or raise ArmError for a bad mix."""
    mix = scale_set.model["properties"].get("skuProfile")
    if mix is None:
        return [""]
    _check(scale_set, mix)
    if scale_set.instances and scale_set.mixed_size:
        return [scale_set.mixed_size]
    orders: dict[str, Callable[[Any], Any]] = {
        "LowestPrice": lambda size: _price(scale_set, size["name"]),
        "CapacityOptimized": lambda _: 0,
        "Prioritized": lambda size: size.get("rank") or 0,
    }
    return [str(size["name"]) for size in sorted(mix["vmSizes"], key=orders[_strategy(mix)])]


def _strategy(mix: dict[str, Any]) -> str:
    return str(mix.get("allocationStrategy") or STRATEGIES[0])


def _price(scale_set: ScaleSetRow, size: str) -> Decimal:
    offer = catalog().offer(size, scale_set.location)
    price = offer and (offer.spot if scale_set.spot else offer.on_demand)
    return price or Decimal("Infinity")


def _check(scale_set: ScaleSetRow, mix: dict[str, Any]) -> None:
    if not scale_set.flexible:
        raise invalid("Parameter 'skuProfile' is not allowed.", target="skuProfile")
    sku, named = scale_set.model["sku"], [str(s.get("name")) for s in mix.get("vmSizes") or []]
    members = scale_set.model["properties"] | scale_set.profile
    unsupported = next((member for member in WITHOUT if members.get(member)), "")
    twice = next((n for n in named if [m.lower() for m in named].count(n.lower()) > 1), "")
    sets = "Virtual Machine Scale Sets with Sku Profile"
    refusals = (
        (sku.get("name") != "Mix", "SkuNameMustBeMixIfSkuProfileIsSpecified",
         f"Sku name is {sku.get('name')}. {sets} must have the Sku name property set to \"Mix\"."),
        (sku.get("tier"), "SkuTierMustNotBeSetIfSkuProfileIsSpecified",
         f"Sku tier is {sku.get('tier')}. {sets} must not have the Sku tier property set."),
        (unsupported, "SkuProfileScenarioNotSupported",
         f"{unsupported} is not supported on {sets}."),
        (_strategy(mix) not in STRATEGIES, "SkuProfileAllocationStrategyInvalid",
         "Sku Profile's Allocation Strategy is invalid."),
        (not named, "SkuProfileVMSizesCannotBeNullOrEmpty",
         "Sku Profile VM Sizes cannot be null or empty. Please provide a valid list of VM Sizes "
         "and retry."),
        (len(named) > 5, "SkuProfileHasTooManyVMSizesInRequest",
         "Too many VM Sizes were specified in the request. Please provide no more than 5 VM "
         "Sizes."),
        (twice, "SkuProfileVMSizesCannotHaveDuplicates",
         f"Sku Profile contains duplicate VM Size: {twice}. Please remove any duplicates and "
         "retry."),
    )  # fmt: skip
    for wrong, code, message in refusals:
        if wrong:
            raise invalid(message, code)
    if unknown := next((name for name in named if catalog().size(name) is None), ""):
        raise invalid(f"The value {unknown} provided for the VM size is not valid.")
    if _strategy(mix) != "Prioritized" and any(s.get("rank") is not None for s in mix["vmSizes"]):
        raise invalid("A rank is for the allocation strategy 'Prioritized'.", target="rank")
