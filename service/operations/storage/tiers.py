"""Access tiers of checkpoints and final models: where they lie, and whether they can be read.

Blob is asked each time, because lifecycle rules and people move blobs as well.
"""

import logging
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.jobs.jobs import JobRow
from service.db.storage import tier_moves
from service.db.storage.tier_moves import TierMove, TierMoveVersion
from service.domain.errors import Archived, CheckpointNotFound, ModelNotFound
from service.domain.models import lineage
from service.domain.models.lineage import ModelSource
from service.domain.money import storage_cost
from service.domain.money.storage_cost import StoragePrices
from service.domain.states import JOB_TERMINAL
from service.domain.storage import access_tiers as rules
from service.domain.storage.access_tiers import (
    ArchivePriority,
    Presence,
    StorageAccount,
    TieredBlob,
)
from service.operations.jobs.jobs import get as get_job
from service.operations.models import model_references
from service.pricing import storage_prices
from service.pricing.source import PriceSource, PricesUnavailable
from service.storage.store import LISTED, BlobStore, StorageError

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Outside:
    """External services that an inspection needs."""

    store: BlobStore
    prices: PriceSource
    account: StorageAccount

    async def read_prices(self) -> StoragePrices | None:
        """Return today's storage prices; None where the price list cannot be read."""
        try:
            return await self.prices.storage(self.account)
        except PricesUnavailable as fault:
            log.warning("storage.prices_unavailable", extra={"cause": str(fault)})
            return None


@dataclass(frozen=True, kw_only=True)
class StoredFolder:
    """A committed checkpoint or the final model, as the database knows it."""

    job_id: str
    path: str
    checkpoint_id: str | None
    step: int | None
    newer: int | None
    milestone: bool
    job_is_over: bool

    @property
    def source(self) -> ModelSource:
        """Return the model or checkpoint in the folder."""
        return ModelSource(self.job_id, self.step)

    @property
    def name(self) -> str:
        """Return the folder's name in a sentence."""
        return "the final model" if self.step is None else f"the checkpoint of step {self.step}"

    @property
    def route(self) -> str:
        """Return the API's path of the folder's tier."""
        which = f"checkpoints/{self.checkpoint_id}" if self.checkpoint_id else "model"
        return f"/v1/fine_tuning/jobs/{self.job_id}/{which}/tier"

    @property
    def command(self) -> str:
        """Return the command that brings the folder back."""
        which = f" --checkpoint {self.checkpoint_id}" if self.checkpoint_id else ""
        return f"rekindle tier {self.job_id} hot{which}"


@dataclass(frozen=True, kw_only=True)
class FolderInspection:
    """A folder with its blobs and its move that is under way."""

    folder: StoredFolder
    blobs: list[TieredBlob]
    prices: StoragePrices
    under_way: TierMove | None
    mark: TierMoveVersion | None = None  # of the folder's moves, before the blobs were listed
    needed_by: tuple[str, ...] = ()  # jobs that are not over and read it

    @property
    def presence(self) -> Presence:
        """Return whether the folder can be read."""
        return rules.folder_presence(self.blobs)


async def folders(conn: AsyncConnection, job: JobRow) -> list[StoredFolder]:
    """Return all folders that can be moved: checkpoints, newest first, and the final model."""
    over = job.state in JOB_TERMINAL
    found = [
        StoredFolder(
            job_id=job.id,
            path=place.path,
            checkpoint_id=place.id,
            step=place.step,
            newer=place.newer,
            milestone=place.milestone,
            job_is_over=over,
        )
        for place in await tier_moves.folders(conn, job.id)
    ]
    if job.result is None or lineage.is_deleted(job.result):
        return found
    path = str(job.result["path"])
    model = StoredFolder(
        job_id=job.id,
        path=path,
        checkpoint_id=None,
        step=None,
        newer=None,
        milestone=False,
        job_is_over=over,
    )
    return [*found, model]


async def inspect_folder(
    engine: AsyncEngine,
    outside: Outside,
    project_id: str,
    job_id: str,
    checkpoint_id: str | None,
) -> FolderInspection:
    """Inspect the folder, or raise CheckpointNotFound or ModelNotFound.

    Lists the blobs last: decisions need the newest list.
    """
    prices = await outside.read_prices() or storage_prices.TABLE
    async with engine.connect() as conn:
        job = await get_job(conn, project_id, job_id)
        found = [f for f in await folders(conn, job) if f.checkpoint_id == checkpoint_id]
        if not found:
            raise _not_found(job, checkpoint_id)
        mark = await tier_moves.mark(conn, job_id, found[0].path)
        under_way = await tier_moves.open_for(conn, job_id, found[0].path)
        needed_by = await model_references.list_readers(conn, project_id, found[0].source)
    return FolderInspection(
        folder=found[0],
        blobs=await outside.store.list_stored(job_id, f"{found[0].path}/", most=LISTED),
        prices=prices,
        under_way=under_way,
        mark=mark,
        needed_by=needed_by,
    )


async def check_paid_resume(
    engine: AsyncEngine, outside: Outside, project_id: str, job_id: str
) -> None:
    """Raise Archived if a job that stopped for lack of money could not read its checkpoint."""
    async with engine.connect() as conn:
        job = await get_job(conn, project_id, job_id)
    if job.over_budget_at is not None and job.pause_requested_at is None:
        await require_readable_checkpoint(engine, outside, project_id, job_id)


async def require_readable_checkpoint(
    engine: AsyncEngine, outside: Outside, project_id: str, job_id: str
) -> None:
    """Raise Archived when the checkpoint that a stopped job would resume from cannot be read."""
    async with engine.connect() as conn:
        if not await tier_moves.has_folders(conn, job_id):
            return
        job = await get_job(conn, project_id, job_id)
        kept = [folder for folder in await folders(conn, job) if folder.checkpoint_id]
    stopped = job.pause_requested_at or job.over_budget_at
    if stopped is None or job.state in JOB_TERMINAL:
        return
    with suppress(StorageError):
        for folder in kept:
            seen = await inspect_folder(engine, outside, project_id, job_id, folder.checkpoint_id)
            if seen.presence is not Presence.GONE:
                require_online(seen)
                return
        if kept:
            raise missing_folder_error(kept[0])


def require_online(seen: FolderInspection) -> None:
    """Raise Archived, with every way back, unless the folder can be read.

    Raises CheckpointNotFound or ModelNotFound when nothing of it is left.
    """
    if seen.presence is Presence.ONLINE:
        return
    if seen.presence is Presence.GONE:
        raise missing_folder_error(seen.folder)
    if seen.presence is Presence.REHYDRATING:
        raise Archived(rehydration_message(seen) + " Try again then.")
    name, folder = seen.folder.name, seen.folder
    standard, high = rehydration_quotes(seen)
    raise Archived(
        f"{name[:1].upper()}{name[1:]} is archived. Bring it back first: {folder.command}, or "
        f'POST {folder.route} {{"tier": "hot"}}. That takes up to {hours(standard)} and costs '
        f'${cents(standard)}; with "priority": "high" (--priority high) about {hours(high)} and '
        f"${cents(high)}."
    )


def missing_message(job_id: str, what: str) -> str:
    """Return the message about a deleted blob or folder."""
    return (
        f"{what} of container {job_id} was deleted from the storage account. "
        "Restore it there (soft delete, versions), or train again."
    )


def missing_folder_error(folder: StoredFolder) -> CheckpointNotFound | ModelNotFound:
    """Return the error for a folder without blobs."""
    text = missing_message(folder.job_id, f"Folder {folder.path}")
    return CheckpointNotFound(text) if folder.checkpoint_id else ModelNotFound(text)


def rehydration_message(seen: FolderInspection) -> str:
    """Return the sentence about a rehydration, with the time at which it ends."""
    name = seen.folder.name
    expected_at = seen.under_way.expected_at if seen.under_way else None
    when = f", at {expected_at:%Y-%m-%d %H:%M} UTC at the latest" if expected_at else ""
    how = next((b.priority for b in seen.blobs if b.priority), ArchivePriority.STANDARD)
    return (
        f"{name[:1].upper()}{name[1:]} is on its way back from the archive ({how} priority{when})."
    )


def rehydration_quotes(
    seen: FolderInspection,
) -> tuple[storage_cost.Rehydration, storage_cost.Rehydration]:
    """Return cost and duration of a rehydration, with standard and with high priority."""
    standard, high = (
        storage_cost.quote_rehydration(seen.blobs, p, seen.prices) for p in ArchivePriority
    )
    return standard, high


def hours(way: storage_cost.Rehydration) -> str:
    """Return the duration of a rehydration in hours, for a sentence."""
    return f"{way.takes.total_seconds() / 3600:.1f}".removesuffix(".0") + " h"


def cents(way: storage_cost.Rehydration) -> str:
    """Return the cost of a rehydration in dollars, to a hundredth of a cent."""
    return f"{way.cost:.4f}"


def _not_found(job: JobRow, checkpoint_id: str | None) -> CheckpointNotFound | ModelNotFound:
    if checkpoint_id is None:
        return ModelNotFound(f"Job {job.id} is {job.state}: it has no model yet.")
    return CheckpointNotFound(
        f"Job {job.id} has no checkpoint {checkpoint_id!r:.80}. List them: "
        f"GET /v1/fine_tuning/jobs/{job.id}/checkpoints."
    )
