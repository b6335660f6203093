"""Select prices of Blob Storage from rows of Azure's price list; a dated table has the rest.

A meter is found by its SKU (tier and redundancy, "Cool LRS") and the end of its name, since some
names have the redundancy ("Cool LRS Write Operations") and some have not ("Cool Data Retrieval").
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import NamedTuple

from service.domain.money.price_check import ListedPrice, PriceBounds
from service.domain.money.storage_cost import StoragePrices, TierPrices
from service.domain.storage.access_tiers import AccessTier, StorageAccount
from service.pricing import price_rows
from service.pricing.price_rows import Row, has, text

PRODUCT = "General Block Blob v2"
_NAME_ENDS_AND_UNITS = {  # of the meter's name, and the unit
    "month": ("data stored", "1 GB/Month"),
    "writes": ("write operations", "10K"),
    "reads": ("read operations", "10K"),
    "retrieval": ("data retrieval", "1 GB"),
}
_PRIORITY, _ITERATIVE = " priority ", " iterative "
_REDUNDANCY = {"RAGRS": "RA-GRS", "RAGZRS": "RA-GZRS"}
_MAX_RATIO = 10


class Meter(NamedTuple):
    """One price of one tier; ``priority``: of a rehydration that is hurried."""

    tier: AccessTier
    member: str  # of TierPrice
    priority: bool = False

    def name(self, account: StorageAccount) -> str:
        """Return the meter's name in messages to operators."""
        hurried = "priority " if self.priority else ""
        account_name = f"{account.redundancy}@{account.region}"
        return f"storage {account_name} {self.tier} {hurried}{self.member}"


HIGH_READS = Meter(AccessTier.ARCHIVE, "reads", priority=True)
HIGH_RETRIEVAL = Meter(AccessTier.ARCHIVE, "retrieval", priority=True)
METERS = (
    *(Meter(tier, member) for tier in AccessTier for member in _NAME_ENDS_AND_UNITS),
    HIGH_READS,
    HIGH_RETRIEVAL,
)


def _tier(month: str, writes: str, reads: str, retrieval: str) -> TierPrices:
    return TierPrices(
        month=Decimal(month),
        writes=Decimal(writes),
        reads=Decimal(reads),
        retrieval=Decimal(retrieval),
    )


# Microsoft's sample prices ("Estimate the cost of archiving data", Azure Blob Storage).
TABLE = StoragePrices(
    tiers={
        AccessTier.HOT: _tier("0.0208", "0.055", "0.0044", "0"),
        AccessTier.COOL: _tier("0.0115", "0.10", "0.01", "0.01"),
        AccessTier.COLD: _tier("0.0045", "0.18", "0.10", "0.03"),
        AccessTier.ARCHIVE: _tier("0.002", "0.11", "5.50", "0.022"),
    },
    high_reads=Decimal(50),
    high_retrieval=Decimal("0.10"),
    source="Microsoft's sample prices",
    as_of=date(2026, 11, 20),
)


def parse_prices(
    rows: Sequence[Row], account: StorageAccount, now: datetime
) -> dict[Meter, ListedPrice]:
    """Return the listed price of each meter of the account at ``now``."""
    account_rows = [row for row in rows if _is_of_account(row, account)]
    return {
        meter: price_rows.parse_price(
            (row for row in account_rows if _is_of_meter(row, account, meter)),
            now,
            free=not _table_price(meter),
        )
        for meter in METERS
    }


def bounds(meter: Meter) -> PriceBounds:
    """Return the plausible prices of a meter.

    Prices of regions and redundancies differ by less than a factor of ten."""
    table_price = _table_price(meter)
    if not table_price:
        return PriceBounds(low=Decimal(0), high=Decimal(1))
    return PriceBounds(low=table_price / _MAX_RATIO, high=table_price * _MAX_RATIO)


def merge(
    prices: Mapping[Meter, Decimal], rows: Iterable[Row], account: StorageAccount, now: datetime
) -> StoragePrices:
    """Return the account's prices: listed ones, completed from the dated table."""
    members_by_tier = {tier: _members(prices, tier) for tier in AccessTier}
    if not any(members_by_tier.values()):
        return TABLE
    is_complete = all("month" in members for members in members_by_tier.values())
    account_rows = (
        row for row in rows if _is_of_account(row, account) and price_rows.is_in_force(row, now)
    )
    return StoragePrices(
        tiers={tier: replace(TABLE.tiers[tier], **members_by_tier[tier]) for tier in AccessTier},
        high_reads=prices.get(HIGH_READS, TABLE.high_reads),
        high_retrieval=prices.get(HIGH_RETRIEVAL, TABLE.high_retrieval),
        source="Azure's price list" + ("" if is_complete else f" and {TABLE.source}"),
        as_of=_newest(account_rows) if is_complete else TABLE.as_of,
    )


def _newest(rows: Iterable[Row]) -> date:
    """Return the date from which the prices apply."""
    begun = [price_rows.begins_at(row).date() for row in rows]
    return max(begun, default=TABLE.as_of)


def _members(prices: Mapping[Meter, Decimal], tier: AccessTier) -> dict[str, Decimal]:
    return {m.member: price for m, price in prices.items() if m.tier is tier and not m.priority}


def _table_price(meter: Meter) -> Decimal:
    if meter == HIGH_READS:
        return TABLE.high_reads
    if meter == HIGH_RETRIEVAL:
        return TABLE.high_retrieval
    price: Decimal = getattr(TABLE.tiers[meter.tier], meter.member)
    return price


def _is_of_account(row: Row, account: StorageAccount) -> bool:
    """Return whether a row is of the account's product and region, and pay-as-you-go."""
    product = has(row, "serviceName", "Storage") and has(row, "productName", PRODUCT)
    paid = price_rows.is_consumption(row) and price_rows.is_first_tier(row)
    return product and paid and has(row, "armRegionName", account.region)


def _is_of_meter(row: Row, account: StorageAccount, meter: Meter) -> bool:
    redundancy = _REDUNDANCY.get(account.redundancy, account.redundancy)
    sku, name = f"{meter.tier} {redundancy}".casefold(), text(row, "meterName")
    end, unit = _NAME_ENDS_AND_UNITS[meter.member]
    stem = name.removesuffix(end)
    is_named = stem != name and (_PRIORITY in name) is meter.priority and _ITERATIVE not in name
    return text(row, "skuName") == sku and is_named and has(row, "unitOfMeasure", unit)
