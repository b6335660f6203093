"""Compute what machines have cost, and what they would have cost on demand.

Decimal throughout and nothing rounded before ``cents``, at the edge. Sums are taken in dollar
microseconds per hour and divided once, so that splitting a row changes nothing at all.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal

CURRENCY = "USD"

CENT = Decimal("0.01")
_MICROSECOND = timedelta(microseconds=1)
_MICROSECONDS_PER_HOUR = timedelta(hours=1) // _MICROSECOND
_GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class MeteredPeriod:
    """A period that costs money; ``ended_at`` None: it still lasts."""

    started_at: datetime
    ended_at: datetime | None

    def microseconds(self, now: datetime) -> int:
        """Return how long it has lasted until ``now``; 0 if it starts later."""
        end = now if self.ended_at is None else min(self.ended_at, now)
        return max((end - self.started_at) // _MICROSECOND, 0)


@dataclass(frozen=True, kw_only=True)
class LedgerRow(MeteredPeriod):
    """One VM at one price for one period."""

    attempt_id: str
    vm_id: str
    hourly: Decimal
    on_demand_hourly: Decimal


@dataclass(frozen=True, kw_only=True)
class Egress:
    """The price of reading a checkpoint in another region than where it is stored."""

    home: str = ""  # the region of the storage; "": not known, and nothing is counted
    per_gib: float = 0.0  # US dollars

    def dollars(self, region: str, size: int) -> float:
        """Return the cost of reading ``size`` bytes in a region.

        >>> Egress(home="eastus", per_gib=0.02).dollars("westus", 50 * 2**30)
        1.0
        """
        return 0.0 if region == self.home or not self.home else self.per_gib * size / _GIB


NO_EGRESS = Egress()


def metered_cost(periods: Iterable[tuple[MeteredPeriod, Decimal]], now: datetime) -> Decimal:
    """Return the cost until ``now`` of periods, each with its price per hour."""
    total = sum((period.microseconds(now) * price for period, price in periods), Decimal(0))
    return total / _MICROSECONDS_PER_HOUR


def machine_cost(rows: Iterable[LedgerRow], now: datetime) -> Decimal:
    """Return the cost of the machines until ``now``."""
    return metered_cost(((row, row.hourly) for row in rows), now)


def machine_hours(rows: Iterable[LedgerRow], now: datetime) -> Decimal:
    """Return the hours of all VMs until ``now``."""
    return metered_cost(((row, Decimal(1)) for row in rows), now)


def cost_of(*, seconds: float, hourly: Decimal, nodes: int = 1) -> Decimal:
    """Return the cost of ``nodes`` machines for ``seconds``."""
    return Decimal(str(seconds)) * nodes * hourly / 3600


def cents(amount: Decimal) -> Decimal:
    """Round an amount to cents, half to even.

    >>> str(cents(Decimal("12.3")))
    '12.30'
    """
    return amount.quantize(CENT, rounding=ROUND_HALF_EVEN)
