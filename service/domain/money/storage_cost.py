"""Compute the cost of storing bytes in Blob, of moving them between tiers, and of reading them.

A GB of Azure's price list is 2**30 bytes, and its month has 730 hours. Decimal throughout.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal

from service.domain.money.cost import MeteredPeriod, metered_cost
from service.domain.storage.access_tiers import (
    GIB,
    MIN_RETENTION,
    SMALL,
    AccessTier,
    ArchivePriority,
    TieredBlob,
    blobs_to_move,
    time_to_rehydrate,
)

HOURS_PER_MONTH = 730
GIB_HOURS = GIB * HOURS_PER_MONTH  # of the unit that prices are of
READ_BYTES = 8 * 2**20  # of one ranged read
_MONTH = timedelta(hours=HOURS_PER_MONTH)
_MICROSECOND = timedelta(microseconds=1)
_OPERATIONS = 10_000  # are priced together


@dataclass(frozen=True, kw_only=True)
class TierPrices:
    """Prices of a tier in US dollars: GiB-month, 10,000 writes or reads, GiB retrieved."""

    month: Decimal
    writes: Decimal
    reads: Decimal
    retrieval: Decimal


@dataclass(frozen=True, kw_only=True)
class StoragePrices:
    """Prices of one storage account, with their source."""

    tiers: Mapping[AccessTier, TierPrices]
    high_reads: Decimal  # from the archive with high priority
    high_retrieval: Decimal
    source: str
    as_of: date


@dataclass(frozen=True, kw_only=True)
class StorageRow(MeteredPeriod):
    """Billed bytes in one tier for one period."""

    tier: AccessTier
    size: int
    month: Decimal  # of a GiB


@dataclass(frozen=True, kw_only=True)
class TierLevel:
    """The bytes that a job has in one tier now."""

    size: int
    month: Decimal


@dataclass(frozen=True, kw_only=True)
class LevelChange:
    """At ``at`` the open row of the tier ends and another begins, unless all is gone."""

    tier: AccessTier
    at: datetime
    level: TierLevel | None


@dataclass(frozen=True, kw_only=True)
class Rehydration:
    """The cost and time of a rehydration at one priority."""

    priority: ArchivePriority
    cost: Decimal
    takes: timedelta


@dataclass(frozen=True, kw_only=True)
class TierMoveQuote:
    """The cost of a move before it is made."""

    blobs: int
    size: int
    operations: Decimal  # the move itself, retrieval included
    early_deletion: Decimal  # of leaving a tier before its time
    month_before: Decimal
    month_after: Decimal
    read_back: Decimal  # from the new tier, all of it once
    free_to_leave: datetime | None  # without an early-deletion charge

    @property
    def charge(self) -> Decimal:
        """Return what is paid once."""
        return self.operations + self.early_deletion


def cost_of_keeping(rows: Iterable[StorageRow], now: datetime) -> Decimal:
    """Return the cost of storing the rows until ``now``."""
    return metered_cost(((row, row.size * row.month) for row in rows), now) / GIB_HOURS


def billed_bytes(blob: TieredBlob) -> int:
    """Return the bytes that Azure bills for a blob."""
    return blob.size if blob.tier is AccessTier.HOT else max(blob.size, SMALL)


def levels_by_tier(
    blobs: Iterable[TieredBlob], prices: StoragePrices
) -> dict[AccessTier, TierLevel]:
    """Return the billed bytes in each tier."""
    sizes: dict[AccessTier, int] = {}
    for blob in blobs:
        sizes[blob.tier] = sizes.get(blob.tier, 0) + billed_bytes(blob)
    return {
        tier: TierLevel(size=size, month=prices.tiers[tier].month)
        for tier, size in sizes.items()
        if size
    }


def with_known_prices(
    levels: Mapping[AccessTier, TierLevel], before: Mapping[AccessTier, TierLevel]
) -> dict[AccessTier, TierLevel]:
    """Return the levels at the prices of the open rows, where no list could be read."""
    return {
        tier: replace(level, month=before[tier].month) if tier in before else level
        for tier, level in levels.items()
    }


def level_changes(
    before: Mapping[AccessTier, TierLevel],
    current: Mapping[AccessTier, TierLevel],
    last_look: datetime,
    now: datetime,
) -> list[LevelChange]:
    """Return how open rows become what was found.

    New bytes are billed from the last inspection on, as they may have come right after it; removed
    ones until now. So the ledger may exceed the invoice and never falls below it. Bytes that only
    changed their tier are not new; if several tiers grew, new bytes count in the most expensive
    one.
    """
    new = _total(current) - _total(before)
    changes = []
    for tier in AccessTier:
        previous, latest = before.get(tier), current.get(tier)
        grown = min(_size_of(latest) - _size_of(previous), new)
        if latest is not None and grown > 0:
            new -= grown
            previous = TierLevel(size=_size_of(previous) + grown, month=(previous or latest).month)
            changes.append(LevelChange(tier=tier, at=last_look, level=previous))
        if previous != latest:
            changes.append(LevelChange(tier=tier, at=now, level=latest))
    return changes


def quote_move(
    blobs: Iterable[TieredBlob],
    to: AccessTier,
    priority: ArchivePriority,
    prices: StoragePrices,
    now: datetime,
) -> TierMoveQuote:
    """Return the cost of a move, the monthly cost after it, and the cost of reading."""
    listed = list(blobs)
    moved = blobs_to_move(listed, to)
    names = {blob.name for blob in moved}
    after = [_blob_in_tier(b, to) if b.movable and b.name in names else b for b in listed]
    return TierMoveQuote(
        blobs=len(moved),
        size=sum(blob.size for blob in moved),
        operations=sum((_operation_cost(b, to, priority, prices) for b in moved), Decimal(0)),
        early_deletion=sum((early_deletion_charge(b, prices, now) for b in moved), Decimal(0)),
        month_before=monthly_cost(listed, prices),
        month_after=monthly_cost(after, prices),
        read_back=read_cost(after, prices),
        free_to_leave=now + MIN_RETENTION[to] if MIN_RETENTION[to] and moved else None,
    )


def monthly_cost(blobs: Iterable[TieredBlob], prices: StoragePrices) -> Decimal:
    """Return the cost of storing the blobs for a month."""
    levels = levels_by_tier(blobs, prices).values()
    return sum((level.size * level.month / GIB for level in levels), Decimal(0))


def early_deletion_charge(blob: TieredBlob, prices: StoragePrices, now: datetime) -> Decimal:
    """Return the charge for leaving the tier now: the rest of its minimum retention."""
    remaining = MIN_RETENTION[blob.tier] - (now - blob.since if blob.since else timedelta(0))
    months = Decimal(max(remaining, timedelta(0)) // _MICROSECOND) / (_MONTH // _MICROSECOND)
    return _billed_gib(blob) * prices.tiers[blob.tier].month * months


def read_cost(blobs: Iterable[TieredBlob], prices: StoragePrices) -> Decimal:
    """Return the cost of reading all blobs once in ranges, rehydrating archived ones first."""
    listed = list(blobs)
    archived = [b for b in listed if b.tier is AccessTier.ARCHIVE]
    hot = prices.tiers[AccessTier.HOT]
    total = quote_rehydration(archived, ArchivePriority.STANDARD, prices).cost
    for blob in listed:
        price = hot if blob.tier is AccessTier.ARCHIVE else prices.tiers[blob.tier]
        ranges = -(-blob.size // READ_BYTES)
        total += ranges * price.reads / _OPERATIONS + _billed_gib(blob) * price.retrieval
    return total


def quote_rehydration(
    blobs: Iterable[TieredBlob], priority: ArchivePriority, prices: StoragePrices
) -> Rehydration:
    """Return the cost and time of rehydrating the archived blobs."""
    archived = [blob for blob in blobs if blob.tier is AccessTier.ARCHIVE]
    return Rehydration(
        priority=priority,
        cost=sum(
            (_operation_cost(b, AccessTier.HOT, priority, prices) for b in archived), Decimal(0)
        ),
        takes=time_to_rehydrate(sum(blob.size for blob in archived), priority),
    )


def _operation_cost(
    blob: TieredBlob, to: AccessTier, priority: ArchivePriority, prices: StoragePrices
) -> Decimal:
    """Return the cost of one Set Blob Tier: a write, or a read from the cooler tier."""
    order = list(AccessTier)
    if order.index(to) > order.index(blob.tier):
        return prices.tiers[to].writes / _OPERATIONS
    price = prices.tiers[blob.tier]
    reads, retrieval = price.reads, price.retrieval
    if blob.tier is AccessTier.ARCHIVE and priority is ArchivePriority.HIGH:
        reads, retrieval = prices.high_reads, prices.high_retrieval
    return reads / _OPERATIONS + _billed_gib(blob) * retrieval


def _billed_gib(blob: TieredBlob) -> Decimal:
    """Return the billed GiB of a blob."""
    return Decimal(billed_bytes(blob)) / GIB


def _blob_in_tier(blob: TieredBlob, to: AccessTier) -> TieredBlob:
    return TieredBlob(name=blob.name, size=blob.size, tier=to)


def _size_of(level: TierLevel | None) -> int:
    return level.size if level else 0


def _total(levels: Mapping[AccessTier, TierLevel]) -> int:
    return sum(level.size for level in levels.values())
