"""How the API shows access tiers, moves between them and their prices."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from service.api.jobs.job_views import money, seconds
from service.api.schemas import storage as schemas
from service.db.jobs.job_facts import JobOverview
from service.db.storage.tier_moves import TierMove
from service.domain.money import cost
from service.domain.money.storage_cost import (
    Rehydration,
    StoragePrices,
    TierMoveQuote,
    billed_bytes,
)
from service.domain.storage import access_tiers as rules
from service.domain.storage.access_tiers import (
    AccessTier,
    ArchivePriority,
    Presence,
    StorageAccount,
    TieredBlob,
)
from service.operations.storage import tiers
from service.operations.storage.tiers import FolderInspection, StoredFolder


def storage(
    overview: JobOverview,
    blobs: list[TieredBlob],
    looks: list[FolderInspection],
    where: StorageAccount,
) -> schemas.Storage:
    """Return all that a job's container holds, by tier and by folder."""
    sizes = {
        str(tier): sum(billed_bytes(b) for b in blobs if b.tier is tier) for tier in AccessTier
    }
    shown: dict[str, Any] = {
        "object": "fine_tuning.job.storage",
        "job": overview.job.id,
        "currency": cost.CURRENCY,
        "spent": money(overview.storage.spent),
        "blobs": len(blobs),
        "bytes": sum(b.size for b in blobs),
        "billed_bytes": sizes,
        "account": account(where),
        "folders": [_folder(look) for look in looks],
    }
    if looks:
        prices = looks[0].prices
        shown |= {"a_month": money(overview.storage.monthly), "prices": _prices(prices)}
    return schemas.Storage(**shown)


def move(
    seen: FolderInspection,
    tier: AccessTier,
    priority: ArchivePriority,
    quote: TierMoveQuote,
    request: TierMove | None,
) -> dict[str, Any]:
    """Return the cost and the progress of a move."""
    return {
        "object": "fine_tuning.job.tier_move",
        "id": request.id if request else None,
        "to": str(tier),
        "priority": str(priority),
        "expected_at": seconds(request.expected_at if request else None),
        "moves": {"blobs": quote.blobs, "bytes": quote.size},
        "cost": {
            "currency": cost.CURRENCY,
            "once": money(quote.charge),
            "charged": money(request.charge) if request else None,
            "operations": money(quote.operations),
            "early_deletion": money(quote.early_deletion),
            "a_month_before": money(quote.month_before),
            "a_month_after": money(quote.month_after),
            "read_back": money(quote.read_back),
            "free_to_leave_at": seconds(quote.free_to_leave),
        },
        "prices": _prices(seen.prices),
        **_folder(seen),
    }


def account(where: StorageAccount) -> schemas.Account:
    """Return the account that the prices are for."""
    return schemas.Account(region=where.region or None, redundancy=where.redundancy)


def _folder(seen: FolderInspection) -> dict[str, Any]:
    """Return one checkpoint or the model with its tier and state."""
    presence = seen.presence
    shown: dict[str, Any] = {
        **_folder_names(seen.folder),
        "bytes": sum(b.size for b in seen.blobs),
        "tier": str(rules.coolest_tier(seen.blobs)),
        "state": str(presence),
        "moving_to": str(seen.under_way.tier) if seen.under_way else None,
    }
    if presence is Presence.ARCHIVED:
        shown["rehydrate"] = {str(w.priority): _way(w) for w in tiers.rehydration_quotes(seen)}
    if presence is Presence.REHYDRATING:
        expected_at: datetime | None = seen.under_way.expected_at if seen.under_way else None
        shown["rehydrating"] = {
            "priority": _priority(seen.blobs),
            "expected_at": seconds(expected_at),
        }
    return shown


def _folder_names(folder: StoredFolder) -> dict[str, Any]:
    return {
        "kind": "checkpoint" if folder.checkpoint_id else "model",
        "checkpoint": folder.checkpoint_id,
        "step_number": folder.step,
        "path": folder.path,
    }


def _way(way: Rehydration) -> dict[str, Any]:
    return {"cost": money(way.cost), "seconds_at_most": int(way.takes.total_seconds())}


def _priority(blobs: Iterable[TieredBlob]) -> str | None:
    """Return the slowest blob's priority: the folder is back when the last blob is."""
    found = {blob.priority for blob in blobs if blob.rehydrating}
    slowest = (
        ArchivePriority.STANDARD if ArchivePriority.STANDARD in found else ArchivePriority.HIGH
    )
    return str(slowest) if found - {None} else None


def _prices(prices: StoragePrices) -> dict[str, Any]:
    tiers_shown = {
        str(tier): {
            "gib_month": str(price.month),
            "writes_10k": str(price.writes),
            "reads_10k": str(price.reads),
            "retrieval_gib": str(price.retrieval),
        }
        for tier, price in prices.tiers.items()
    }
    return {"source": prices.source, "as_of": prices.as_of.isoformat(), "tiers": tiers_shown}
