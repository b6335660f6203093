"""What it costs to keep bytes in Blob, to move them to another tier, and to read them back.

A GB of Azure's price list is 2**30 bytes, and its month has 730 hours. Decimal throughout.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal

from service.domain.storage.access_tiers import (
    GIB,
    SMALL,
    STAYS,
    Priority,
    StoredBlob,
    Tier,
    moving,
    time_to_rehydrate,
)

HOURS_PER_MONTH = 730
READ_BYTES = 8 * 2**20  # of one ranged read
_MONTH = timedelta(hours=HOURS_PER_MONTH)
_MICROSECOND = timedelta(microseconds=1)
_OPERATIONS = 10_000  # are priced together


@dataclass(frozen=True, kw_only=True)
class TierPrice:
    """US dollars: a GiB for a month, 10,000 writes or reads, and a GiB read back."""

    month: Decimal
    writes: Decimal
    reads: Decimal
    retrieval: Decimal


@dataclass(frozen=True, kw_only=True)
class StoragePrices:
    """Prices of one account, and where they are from."""

    tiers: Mapping[Tier, TierPrice]
    high_reads: Decimal  # from the archive with high priority
    high_retrieval: Decimal
    source: str
    as_of: date


@dataclass(frozen=True, kw_only=True)
class StorageRow:
    """So many billed bytes in one tier for one stretch of time; ``ended_at`` None: still there."""

    tier: Tier
    size: int
    month: Decimal  # of a GiB
    started_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class Level:
    """What a job has in one tier now."""

    size: int
    month: Decimal


@dataclass(frozen=True, kw_only=True)
class Change:
    """The open row of the tier ends ``at`` that moment; another begins, unless all is gone."""

    tier: Tier
    at: datetime
    level: Level | None


@dataclass(frozen=True, kw_only=True)
class Rehydration:
    """One way back from the archive."""

    priority: Priority
    cost: Decimal
    takes: timedelta


@dataclass(frozen=True, kw_only=True)
class Quote:
    """What a move costs, before it is made."""

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
        """What is paid once."""
        return self.operations + self.early_deletion


def kept(rows: Iterable[StorageRow], now: datetime) -> Decimal:
    """What keeping it has cost until ``now``."""
    total = sum((_microseconds(r, now) * r.size * r.month for r in rows), Decimal(0))
    return total / (GIB * (_MONTH // _MICROSECOND))


def billed(blob: StoredBlob) -> int:
    """The bytes that are paid for."""
    return blob.size if blob.tier is Tier.HOT else max(blob.size, SMALL)


def levels(blobs: Iterable[StoredBlob], prices: StoragePrices) -> dict[Tier, Level]:
    """What lies in each tier."""
    sizes: dict[Tier, int] = {}
    for blob in blobs:
        sizes[blob.tier] = sizes.get(blob.tier, 0) + billed(blob)
    return {
        tier: Level(size=size, month=prices.tiers[tier].month)
        for tier, size in sizes.items()
        if size
    }


def at_known_prices(found: Mapping[Tier, Level], before: Mapping[Tier, Level]) -> dict[Tier, Level]:
    """What was found, at the prices of the open rows: no list could be read."""
    return {
        tier: replace(level, month=before[tier].month) if tier in before else level
        for tier, level in found.items()
    }


def changes(
    before: Mapping[Tier, Level], found: Mapping[Tier, Level], last_look: datetime, now: datetime
) -> list[Change]:
    """How open rows become what was found.

    What is new is billed from the last look on, for it may have come right after it; what is gone
    is billed until now. So the ledger may say too much, and never less than the invoice. Bytes that
    have only changed their tier are not new; of several tiers that grew, the dearest has what is.
    """
    new = _total(found) - _total(before)
    news = []
    for tier in Tier:
        was, is_now = before.get(tier), found.get(tier)
        grown = min(_size_of(is_now) - _size_of(was), new)
        if is_now is not None and grown > 0:
            new -= grown
            was = Level(size=_size_of(was) + grown, month=(was or is_now).month)
            news.append(Change(tier=tier, at=last_look, level=was))
        if was != is_now:
            news.append(Change(tier=tier, at=now, level=is_now))
    return news


def quote(
    blobs: Iterable[StoredBlob], to: Tier, priority: Priority, prices: StoragePrices, now: datetime
) -> Quote:
    """What moving to another tier costs, what is paid each month after it, and to read it."""
    every = list(blobs)
    moved = moving(every, to)
    names = {blob.name for blob in moved}
    after = [_moved(b, to) if b.movable and b.name in names else b for b in every]
    return Quote(
        blobs=len(moved),
        size=sum(blob.size for blob in moved),
        operations=sum((_operation(b, to, priority, prices) for b in moved), Decimal(0)),
        early_deletion=sum((early_deletion(b, prices, now) for b in moved), Decimal(0)),
        month_before=a_month(every, prices),
        month_after=a_month(after, prices),
        read_back=read_back(after, prices),
        free_to_leave=now + STAYS[to] if STAYS[to] and moved else None,
    )


def a_month(blobs: Iterable[StoredBlob], prices: StoragePrices) -> Decimal:
    """What keeping them costs a month."""
    found = levels(blobs, prices).values()
    return sum((level.size * level.month / GIB for level in found), Decimal(0))


def early_deletion(blob: StoredBlob, prices: StoragePrices, now: datetime) -> Decimal:
    """What leaving its tier now costs: the rest of the time that the tier asks for."""
    left = STAYS[blob.tier] - (now - blob.since if blob.since else timedelta(0))
    months = Decimal(max(left, timedelta(0)) // _MICROSECOND) / (_MONTH // _MICROSECOND)
    return _size(blob) * prices.tiers[blob.tier].month * months


def read_back(blobs: Iterable[StoredBlob], prices: StoragePrices) -> Decimal:
    """Reading all of it once, in ranges; of what is archived, bringing it back first."""
    every = list(blobs)
    archived = [b for b in every if b.tier is Tier.ARCHIVE]
    hot = prices.tiers[Tier.HOT]
    total = rehydrating(archived, Priority.STANDARD, prices).cost
    for blob in every:
        price = hot if blob.tier is Tier.ARCHIVE else prices.tiers[blob.tier]
        ranges = -(-blob.size // READ_BYTES)
        total += ranges * price.reads / _OPERATIONS + _size(blob) * price.retrieval
    return total


def rehydrating(
    blobs: Iterable[StoredBlob], priority: Priority, prices: StoragePrices
) -> Rehydration:
    """What bringing the archived ones among them back costs, and how long it takes."""
    archived = [blob for blob in blobs if blob.tier is Tier.ARCHIVE]
    return Rehydration(
        priority=priority,
        cost=sum((_operation(b, Tier.HOT, priority, prices) for b in archived), Decimal(0)),
        takes=time_to_rehydrate(sum(blob.size for blob in archived), priority),
    )


def _operation(blob: StoredBlob, to: Tier, priority: Priority, prices: StoragePrices) -> Decimal:
    """One Set Blob Tier: a write in a cooler tier, or a read from the cooler one it leaves."""
    order = list(Tier)
    if order.index(to) > order.index(blob.tier):
        return prices.tiers[to].writes / _OPERATIONS
    price = prices.tiers[blob.tier]
    reads, retrieval = price.reads, price.retrieval
    if blob.tier is Tier.ARCHIVE and priority is Priority.HIGH:
        reads, retrieval = prices.high_reads, prices.high_retrieval
    return reads / _OPERATIONS + _size(blob) * retrieval


def _size(blob: StoredBlob) -> Decimal:
    """Billed GiB."""
    return Decimal(billed(blob)) / GIB


def _moved(blob: StoredBlob, to: Tier) -> StoredBlob:
    return StoredBlob(name=blob.name, size=blob.size, tier=to)


def _size_of(level: Level | None) -> int:
    return level.size if level else 0


def _total(found: Mapping[Tier, Level]) -> int:
    return sum(level.size for level in found.values())


def _microseconds(row: StorageRow, now: datetime) -> int:
    """How long the row has run until ``now``; nothing when it starts later."""
    end = now if row.ended_at is None else min(row.ended_at, now)
    return max((end - row.started_at) // _MICROSECOND, 0)
