"""Decide whether to accept a price that Azure lists. Pure.

A price outside the plausible bounds is never accepted. A price more than five times the last good
one, or less than a fifth of it, is accepted once it has been listed for a day.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from service.domain.performance.vm_catalogue import lookup
from service.domain.states import CapacityType

JUMP_FACTOR = 5
DOUBT_PERIOD = timedelta(days=1)
# Spot is never cheaper than the fiftieth part of on demand; Azure says 90 % at most
MAX_SPOT_DISCOUNT = 50


@dataclass(frozen=True, kw_only=True)
class ListedPrice:
    """What the price list has for one meter now."""

    price: Decimal | None  # US dollars; None: no row in force is a price
    fault: str = ""  # what is wrong with its rows, for operators
    unreadable: bool = False  # a row's price is no number


@dataclass(frozen=True, kw_only=True)
class PriceDoubt:
    """A price that jumped, and when it is accepted if it is still listed."""

    price: Decimal
    settles_at: datetime


@dataclass(frozen=True, kw_only=True)
class PriceBounds:
    """The plausible range of a unit price in US dollars, both ends included."""

    low: Decimal
    high: Decimal

    def contains(self, price: Decimal) -> bool:
        """Return whether a price is within the bounds."""
        return self.low <= price <= self.high


@dataclass(frozen=True, kw_only=True)
class PriceVerdict:
    """The price to use, or None; ``reason`` is for operators."""

    price: Decimal | None
    reason: str = ""
    doubt: PriceDoubt | None = None  # to be kept until it settles


def check_price(
    listed: ListedPrice,
    last: Decimal | None,
    doubt: PriceDoubt | None,
    bounds: PriceBounds,
    now: datetime,
) -> PriceVerdict:
    """Choose between the listed price and ``last``, the last good one.

    ``doubt``: an earlier jump that has not settled.
    """
    last = last if last is not None and bounds.contains(last) else None
    price = listed.price
    if price is None:  # rows that are no price may be a fault of a day; no rows: it is not sold
        return PriceVerdict(price=last if listed.fault else None, reason=listed.fault)
    if not bounds.contains(price):
        reason = f"${price} is not between ${bounds.low} and ${bounds.high}"
        return PriceVerdict(price=last, reason=reason)
    if last is None or not is_jump(price, last):
        return PriceVerdict(price=price, reason=listed.fault)
    if doubt is None or is_jump(price, doubt.price):
        doubt = PriceDoubt(price=price, settles_at=now + DOUBT_PERIOD)
    if now >= doubt.settles_at:
        return PriceVerdict(price=price, reason=listed.fault)
    reason = (
        f"${price} is more than {JUMP_FACTOR} times away from the last good price, ${last}; "
        f"it is used from {doubt.settles_at:%Y-%m-%d %H:%M} UTC on, if it is still listed then"
    )
    return PriceVerdict(price=last, reason=reason, doubt=doubt)


def is_jump(price: Decimal, last: Decimal) -> bool:
    """Return whether one price is more than JUMP_FACTOR times the other."""
    return price > JUMP_FACTOR * last or last > JUMP_FACTOR * price


def machine_bounds(vm_size: str, capacity_type: CapacityType) -> PriceBounds:
    """Return the bounds of a machine-hour, by its GPUs where the VM size is known."""
    sku = lookup(vm_size)
    gpus = sku.gpus if sku else 0
    if not gpus:
        return PriceBounds(low=Decimal("0.0001"), high=Decimal(1000))
    low = Decimal("0.05") if capacity_type is CapacityType.ON_DEMAND else Decimal("0.005")
    return PriceBounds(low=gpus * low, high=gpus * Decimal(100))


def spot_bounds(bounds: PriceBounds, on_demand: Decimal) -> PriceBounds:
    """Return the bounds of a Spot machine without a last good price, from on demand."""
    low = max(bounds.low, on_demand / MAX_SPOT_DISCOUNT)
    return PriceBounds(low=low, high=min(bounds.high, JUMP_FACTOR * on_demand))
