"""Moves to another access tier: the quote, and the request, which is written once.

A move costs money, and an inspection is older than the decision. So a request is written only if
the folder's moves have not changed since the inspection.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.core import leases
from service.db.jobs import events, jobs
from service.db.storage import tier_moves
from service.db.storage.tier_moves import TierMove
from service.domain.errors import Archived, Conflict
from service.domain.ids import new_id
from service.domain.models.lineage import ModelSource
from service.domain.money import storage_cost
from service.domain.money.storage_cost import TierMoveQuote
from service.domain.storage import access_tiers as rules
from service.domain.storage.access_tiers import (
    AccessTier,
    ArchivePriority,
    FolderFacts,
    Presence,
    TieredBlob,
)
from service.operations.models import model_references
from service.operations.storage.tiers import (
    FolderInspection,
    StorageServices,
    inspect_folder,
    missing_folder_error,
    rehydration_message,
)


@dataclass(frozen=True, kw_only=True)
class MoveRequest:
    """A request that a job's folder be in that tier; ``checkpoint_id`` None: the final model."""

    project_id: str
    job_id: str
    checkpoint_id: str | None
    tier: AccessTier
    priority: ArchivePriority


def quote(
    inspection: FolderInspection,
    redundancy: str,
    tier: AccessTier,
    priority: ArchivePriority,
    now: datetime,
) -> TierMoveQuote:
    """Return the cost of the move; raises Conflict when the folder may not be in that tier.

    Raises CheckpointNotFound or ModelNotFound when its blobs were deleted.
    """
    folder = inspection.folder
    standing = FolderFacts(
        label=folder.name,
        job_is_over=folder.is_job_over,
        newer=folder.newer,
        milestone=folder.milestone,
        redundancy=redundancy,
        needed_by=inspection.needed_by,
    )
    if reason := rules.tier_refusal(standing, tier):
        raise Conflict(reason, param="tier")
    if inspection.presence is Presence.GONE:
        raise missing_folder_error(folder)
    if inspection.presence is Presence.REHYDRATING and _is_moving_elsewhere(inspection, tier):
        raise Archived(rehydration_message(inspection) + " Azure accepts no other move until then.")
    return storage_cost.quote_move(inspection.blobs, tier, priority, inspection.prices, now)


async def quote_move(
    engine: AsyncEngine,
    services: StorageServices,
    request: MoveRequest,
    now: Callable[[], datetime],
) -> tuple[FolderInspection, TierMoveQuote]:
    """Inspect the folder and quote the move; raises as ``quote`` does."""
    inspection = await inspect_folder(
        engine, services, request.project_id, request.job_id, request.checkpoint_id
    )
    return inspection, quote(
        inspection, services.account.redundancy, request.tier, request.priority, now()
    )


async def request_move(
    engine: AsyncEngine,
    services: StorageServices,
    request: MoveRequest,
    now: Callable[[], datetime],
) -> tuple[FolderInspection, TierMoveQuote, TierMove | None]:
    """Inspect, quote and write the request. No move: the folder is in that tier and stays there.

    Repeats where the folder's moves have changed since the inspection. This ends: a concurrent
    request is written by then, and the worker of another request was stopped.
    """
    while True:
        inspection, move_quote = await quote_move(engine, services, request, now)
        folder = inspection.folder
        async with engine.begin() as conn:
            await jobs.acquire_lock(conn, model_references.lock_key(folder.job_id, folder.path))
            before = await tier_moves.open_for(conn, folder.job_id, folder.path)
            if before is not None and before.tier is request.tier:
                return (
                    inspection,
                    move_quote,
                    await _repeat_request(conn, inspection, request, before, now()),
                )
            if request.tier is AccessTier.ARCHIVE and await _is_needed_now(
                conn, request, folder.source
            ):
                continue
            if await _is_unchanged(conn, inspection, before, now()):
                return (
                    inspection,
                    move_quote,
                    await _write_request(conn, inspection, request, move_quote, before, now()),
                )


async def _is_needed_now(conn: AsyncConnection, request: MoveRequest, source: ModelSource) -> bool:
    """Return whether a job now reads the folder that had no readers at the inspection."""
    return bool(await model_references.list_readers(conn, request.project_id, source))


async def _is_unchanged(
    conn: AsyncConnection, inspection: FolderInspection, before: TierMove | None, now: datetime
) -> bool:
    """Return whether the folder's moves are unchanged since the inspection.

    Stops the worker of another request: blob by blob it would outdate every inspection.
    """
    version = await tier_moves.mark(conn, inspection.folder.job_id, inspection.folder.path)
    if before is not None and version.lease_token is not None:
        await tier_moves.take_over(conn, before, now)
        return False
    return version == inspection.moves_version


async def _repeat_request(
    conn: AsyncConnection,
    inspection: FolderInspection,
    request: MoveRequest,
    before: TierMove,
    now: datetime,
) -> TierMove | None:
    """Return the open move of the same request; hurry a rehydration if the new priority is high."""
    expected_at = _ready_at(inspection.blobs, request.tier, request.priority, now)
    if (
        request.priority is ArchivePriority.HIGH
        and before.priority is not request.priority
        and expected_at
    ):
        charge = before.charge + _high_priority_surcharge(inspection, request.tier, now)
        await tier_moves.raise_priority(conn, before, charge, expected_at, now)
    return await tier_moves.open_for(conn, before.job_id, before.path)


async def _write_request(
    conn: AsyncConnection,
    inspection: FolderInspection,
    request: MoveRequest,
    move_quote: TierMoveQuote,
    before: TierMove | None,
    now: datetime,
) -> TierMove | None:
    """Write the request and return it; None where nothing is left to move."""
    if before is None and not move_quote.blobs:
        return None
    folder, due_at = inspection.folder, now
    if before is not None:
        await tier_moves.replace(conn, before, _unmoved_charge(inspection, before), now)
        due_at += leases.LEASE  # by then a request in flight has reached Blob
    move = TierMove(
        id=new_id("tier", now),
        job_id=folder.job_id,
        checkpoint_id=folder.checkpoint_id,
        path=folder.path,
        tier=request.tier,
        priority=request.priority,
        charge=move_quote.charge,
        asked_at=now,
        expected_at=_ready_at(inspection.blobs, request.tier, request.priority, now),
        ended_at=None,
        outcome=None,
        step=folder.step,
    )
    await tier_moves.add(conn, move, due_at)
    data = {"move": move.id, "tier": move.tier, "charge": str(move_quote.charge.normalize())}
    await events.add(conn, folder.job_id, now, "storage.tier_asked", _move_message(move), data=data)
    return move


def _high_priority_surcharge(
    inspection: FolderInspection, tier: AccessTier, now: datetime
) -> Decimal:
    """Return the extra cost of high priority for the blobs that are not back yet."""
    high, standard = (
        storage_cost.quote_move(inspection.blobs, tier, priority, inspection.prices, now).charge
        for priority in (ArchivePriority.HIGH, ArchivePriority.STANDARD)
    )
    return high - standard


def _unmoved_charge(inspection: FolderInspection, before: TierMove) -> Decimal:
    """Return the cost of what a replaced move has not moved, priced as of its request."""
    unmoved_quote = storage_cost.quote_move(
        inspection.blobs, before.tier, before.priority, inspection.prices, before.asked_at
    )
    return unmoved_quote.charge


def _is_moving_elsewhere(inspection: FolderInspection, tier: AccessTier) -> bool:
    return any(b.rehydrating not in (None, tier) for b in inspection.blobs)


def _ready_at(
    blobs: list[TieredBlob], tier: AccessTier, priority: ArchivePriority, now: datetime
) -> datetime | None:
    archived = sum(b.size for b in blobs if b.tier is AccessTier.ARCHIVE)
    if not archived or tier is AccessTier.ARCHIVE:
        return None
    return now + rules.time_to_rehydrate(archived, priority)


def _move_message(move: TierMove) -> str:
    label = "the final model" if move.step is None else f"the checkpoint of step {move.step}"
    if move.expected_at is None:
        return f"Move of {label} to tier {move.tier} requested"
    return (
        f"Rehydration of {label} requested ({move.priority} priority): ready at "
        f"{move.expected_at:%Y-%m-%d %H:%M} UTC at the latest"
    )
