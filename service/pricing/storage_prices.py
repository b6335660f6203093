"""Prices of Blob Storage: from rows of Azure's price list, and a dated table for what it lacks.

A meter is found by its SKU (tier and redundancy, "Cool LRS") and the end of its name, since some
names have the redundancy ("Cool LRS Write Operations") and some have not ("Cool Data Retrieval").
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

from service.domain.storage_cost import StoragePrices, TierPrice
from service.domain.tiers import Account, Tier
from service.pricing.source import PricesUnavailable

PRODUCT = "General Block Blob v2"
_ENDS = {
    "month": "Data Stored",
    "writes": "Write Operations",
    "reads": "Read Operations",
    "retrieval": "Data Retrieval",
}
_PRIORITY = " Priority "
_REDUNDANCY = {"RAGRS": "RA-GRS", "RAGZRS": "RA-GZRS"}

Row = dict[str, Any]


def _tier(month: str, writes: str, reads: str, retrieval: str) -> TierPrice:
    return TierPrice(
        month=Decimal(month),
        writes=Decimal(writes),
        reads=Decimal(reads),
        retrieval=Decimal(retrieval),
    )


# Microsoft's sample prices ("Estimate the cost of archiving data", Azure Blob Storage).
TABLE = StoragePrices(
    tiers={
        Tier.HOT: _tier("0.0208", "0.055", "0.0044", "0"),
        Tier.COOL: _tier("0.0115", "0.10", "0.01", "0.01"),
        Tier.COLD: _tier("0.0045", "0.18", "0.10", "0.03"),
        Tier.ARCHIVE: _tier("0.002", "0.11", "5.50", "0.022"),
    },
    high_reads=Decimal(50),
    high_retrieval=Decimal("0.10"),
    source="Microsoft's sample prices",
    as_of=date(2026, 11, 20),
)


def listed(rows: Sequence[Row], account: Account) -> StoragePrices:
    """What the list says, and the table's word where it says nothing."""
    known = {tier: _of_tier(rows, account, tier) for tier in Tier}
    if not any(known.values()):
        return TABLE
    high = _of_tier(rows, account, Tier.ARCHIVE, priority=True)
    tiers = {tier: replace(TABLE.tiers[tier], **known[tier]) for tier in Tier}
    whole = all("month" in found for found in known.values())
    return StoragePrices(
        tiers=tiers,
        high_reads=high.get("reads", TABLE.high_reads),
        high_retrieval=high.get("retrieval", TABLE.high_retrieval),
        source="Azure's price list" + ("" if whole else f" and {TABLE.source}"),
        as_of=_newest(rows) if whole else TABLE.as_of,
    )


def price_of(row: Row) -> Decimal:
    """The price of a row, or PricesUnavailable."""
    try:
        return Decimal(row["retailPrice"])
    except (KeyError, TypeError, InvalidOperation) as error:
        raise PricesUnavailable(f"A price is missing or no number: {row!r:.200}") from error


def _of_tier(
    rows: Iterable[Row], account: Account, tier: Tier, *, priority: bool = False
) -> dict[str, Decimal]:
    """What is listed of one tier; of prices that fall with the volume, the first."""
    redundancy = _REDUNDANCY.get(account.redundancy, account.redundancy)
    newest: dict[str, Row] = {}
    for row in rows:
        name = str(row.get("meterName") or "")
        mine = row.get("skuName") == f"{tier.capitalize()} {redundancy}"
        if not mine or row.get("tierMinimumUnits") or (_PRIORITY in name) is not priority:
            continue
        for member, end in _ENDS.items():
            if name.endswith(end) and _since(row) >= _since(newest.get(member, {})):
                newest[member] = row
    return {member: price_of(row) for member, row in newest.items()}


def _newest(rows: Iterable[Row]) -> date:
    """Since when the prices hold; a row may be dated as it likes."""
    try:
        return date.fromisoformat(max(map(_since, rows))[:10])
    except ValueError:
        return TABLE.as_of


def _since(row: Row) -> str:
    return str(row.get("effectiveStartDate", ""))
