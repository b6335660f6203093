"""Decides whether a price that Azure lists is believed. Pure.

A price outside of what such a thing can cost never is. One that is more than five times the last
good price, or less than a fifth of it, is believed once it has been listed for a day.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from service.domain.performance.vm_catalogue import lookup
from service.domain.states import CapacityType

FACTOR = 5
SETTLES = timedelta(days=1)
DISCOUNT = 50  # Spot is never cheaper than the fiftieth part of on demand; Azure says 90 % at most


@dataclass(frozen=True, kw_only=True)
class Listed:
    """What the list says about one meter now."""

    price: Decimal | None  # US dollars; None: no row in force is a price
    fault: str = ""  # what is wrong with its rows, for operators
    unreadable: bool = False  # a row's price is no number


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """A price that jumped, and when it is believed if it is still listed then."""

    price: Decimal
    settles_at: datetime


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What one unit can cost in US dollars, both ends included."""

    low: Decimal
    high: Decimal

    def hold(self, price: Decimal) -> bool:
        """True for a price within them."""
        return self.low <= price <= self.high


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The price to use, or None; ``reason`` says what operators should know about it."""

    price: Decimal | None
    reason: str = ""
    doubt: Doubt | None = None  # to be kept until it settles


def judge(
    listed: Listed, last: Decimal | None, doubt: Doubt | None, bounds: Bounds, now: datetime
) -> Verdict:
    """Choose between the listed price and ``last``, the last good one.

    ``doubt`` is what is known of an earlier jump.
    """
    last = last if last is not None and bounds.hold(last) else None
    price = listed.price
    if price is None:  # rows that are no price may be a fault of a day; no rows: it is not sold
        return Verdict(price=last if listed.fault else None, reason=listed.fault)
    if not bounds.hold(price):
        reason = f"${price} is not between ${bounds.low} and ${bounds.high}"
        return Verdict(price=last, reason=reason)
    if last is None or not is_jump(price, last):
        return Verdict(price=price, reason=listed.fault)
    if doubt is None or is_jump(price, doubt.price):
        doubt = Doubt(price=price, settles_at=now + SETTLES)
    if now >= doubt.settles_at:
        return Verdict(price=price, reason=listed.fault)
    reason = (
        f"${price} is more than {FACTOR} times away from the last good price, ${last}; "
        f"it is used from {doubt.settles_at:%Y-%m-%d %H:%M} UTC on, if it is still listed then"
    )
    return Verdict(price=last, reason=reason, doubt=doubt)


def is_jump(price: Decimal, last: Decimal) -> bool:
    """True when one is more than FACTOR times the other."""
    return price > FACTOR * last or last > FACTOR * price


def machine_bounds(vm_size: str, capacity_type: CapacityType) -> Bounds:
    """What an hour of a machine can cost: by its GPUs, where the catalogue knows the size."""
    sku = lookup(vm_size)
    gpus = sku.gpus if sku else 0
    if not gpus:
        return Bounds(low=Decimal("0.0001"), high=Decimal(1000))
    low = Decimal("0.05") if capacity_type is CapacityType.ON_DEMAND else Decimal("0.005")
    return Bounds(low=gpus * low, high=gpus * Decimal(100))


def spot_bounds(bounds: Bounds, on_demand: Decimal) -> Bounds:
    """The same of a Spot machine without a last good price, beside its price on demand."""
    low = max(bounds.low, on_demand / DISCOUNT)
    return Bounds(low=low, high=min(bounds.high, FACTOR * on_demand))
