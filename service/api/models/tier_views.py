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
    inspections: list[FolderInspection],
    storage_account: StorageAccount,
) -> schemas.Storage:
    """Return all that a job's container holds, by tier and by folder."""
    sizes = {
        str(tier): sum(billed_bytes(b) for b in blobs if b.tier is tier) for tier in AccessTier
    }
    members: dict[str, Any] = {
        "object": "fine_tuning.job.storage",
        "job": overview.job.id,
        "currency": cost.CURRENCY,
        "spent": money(overview.storage.spent),
        "blobs": len(blobs),
        "bytes": sum(b.size for b in blobs),
        "billed_bytes": sizes,
        "account": account(storage_account),
        "folders": [_folder(inspection) for inspection in inspections],
    }
    if inspections:
        prices = inspections[0].prices
        members |= {"a_month": money(overview.storage.monthly), "prices": _prices(prices)}
    return schemas.Storage(**members)


def move(
    inspection: FolderInspection,
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
        "prices": _prices(inspection.prices),
        **_folder(inspection),
    }


def account(storage_account: StorageAccount) -> schemas.Account:
    """Return the account that the prices are for."""
    return schemas.Account(
        region=storage_account.region or None, redundancy=storage_account.redundancy
    )


def _folder(inspection: FolderInspection) -> dict[str, Any]:
    """Return one checkpoint or the model with its tier and state."""
    presence = inspection.presence
    members: dict[str, Any] = {
        **_folder_names(inspection.folder),
        "bytes": sum(b.size for b in inspection.blobs),
        "tier": str(rules.coolest_tier(inspection.blobs)),
        "state": str(presence),
        "moving_to": str(inspection.current_move.tier) if inspection.current_move else None,
    }
    if presence is Presence.ARCHIVED:
        members["rehydrate"] = {
            str(w.priority): _way(w) for w in tiers.rehydration_quotes(inspection)
        }
    if presence is Presence.REHYDRATING:
        expected_at: datetime | None = (
            inspection.current_move.expected_at if inspection.current_move else None
        )
        members["rehydrating"] = {
            "priority": _priority(inspection.blobs),
            "expected_at": seconds(expected_at),
        }
    return members


def _folder_names(folder: StoredFolder) -> dict[str, Any]:
    return {
        "kind": "checkpoint" if folder.checkpoint_id else "model",
        "checkpoint": folder.checkpoint_id,
        "step_number": folder.step,
        "path": folder.path,
    }


def _way(rehydration: Rehydration) -> dict[str, Any]:
    return {
        "cost": money(rehydration.cost),
        "seconds_at_most": int(rehydration.takes.total_seconds()),
    }


def _priority(blobs: Iterable[TieredBlob]) -> str | None:
    """Return the slowest blob's priority: the folder is back when the last blob is."""
    priorities = {blob.priority for blob in blobs if blob.rehydrating}
    slowest = (
        ArchivePriority.STANDARD if ArchivePriority.STANDARD in priorities else ArchivePriority.HIGH
    )
    return str(slowest) if priorities - {None} else None


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
