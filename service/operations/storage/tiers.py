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
from service.storage.store import MAX_LISTED, BlobStore, StorageError

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class StorageServices:
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
    is_job_over: bool

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
        resource = f"checkpoints/{self.checkpoint_id}" if self.checkpoint_id else "model"
        return f"/v1/fine_tuning/jobs/{self.job_id}/{resource}/tier"

    @property
    def command(self) -> str:
        """Return the command that brings the folder back."""
        option = f" --checkpoint {self.checkpoint_id}" if self.checkpoint_id else ""
        return f"rekindle tier {self.job_id} hot{option}"


@dataclass(frozen=True, kw_only=True)
class FolderInspection:
    """A folder with its blobs and its move that is under way."""

    folder: StoredFolder
    blobs: list[TieredBlob]
    prices: StoragePrices
    current_move: TierMove | None
    moves_version: TierMoveVersion | None = None  # from before the blobs were listed
    needed_by: tuple[str, ...] = ()  # jobs that are not over and read it

    @property
    def presence(self) -> Presence:
        """Return whether the folder can be read."""
        return rules.folder_presence(self.blobs)


async def list_folders(conn: AsyncConnection, job: JobRow) -> list[StoredFolder]:
    """Return all folders that can be moved: checkpoints, newest first, and the final model."""
    is_over = job.state in JOB_TERMINAL
    checkpoints = [
        StoredFolder(
            job_id=job.id,
            path=row.path,
            checkpoint_id=row.id,
            step=row.step,
            newer=row.newer,
            milestone=row.milestone,
            is_job_over=is_over,
        )
        for row in await tier_moves.folders(conn, job.id)
    ]
    if job.result is None or lineage.is_deleted(job.result):
        return checkpoints
    path = str(job.result["path"])
    model = StoredFolder(
        job_id=job.id,
        path=path,
        checkpoint_id=None,
        step=None,
        newer=None,
        milestone=False,
        is_job_over=is_over,
    )
    return [*checkpoints, model]


async def inspect_folder(
    engine: AsyncEngine,
    services: StorageServices,
    project_id: str,
    job_id: str,
    checkpoint_id: str | None,
) -> FolderInspection:
    """Inspect the folder, or raise CheckpointNotFound or ModelNotFound.

    Lists the blobs last: decisions need the newest list.
    """
    prices = await services.read_prices() or storage_prices.TABLE
    async with engine.connect() as conn:
        job = await get_job(conn, project_id, job_id)
        matches = [f for f in await list_folders(conn, job) if f.checkpoint_id == checkpoint_id]
        if not matches:
            raise _not_found(job, checkpoint_id)
        version = await tier_moves.mark(conn, job_id, matches[0].path)
        under_way = await tier_moves.open_for(conn, job_id, matches[0].path)
        needed_by = await model_references.list_readers(conn, project_id, matches[0].source)
    return FolderInspection(
        folder=matches[0],
        blobs=await services.store.list_stored(job_id, f"{matches[0].path}/", most=MAX_LISTED),
        prices=prices,
        current_move=under_way,
        moves_version=version,
        needed_by=needed_by,
    )


async def check_paid_resume(
    engine: AsyncEngine, services: StorageServices, project_id: str, job_id: str
) -> None:
    """Raise Archived if a job that stopped for lack of money could not read its checkpoint."""
    async with engine.connect() as conn:
        job = await get_job(conn, project_id, job_id)
    if job.over_budget_at is not None and job.pause_requested_at is None:
        await require_readable_checkpoint(engine, services, project_id, job_id)


async def require_readable_checkpoint(
    engine: AsyncEngine, services: StorageServices, project_id: str, job_id: str
) -> None:
    """Raise Archived when the checkpoint that a stopped job would resume from cannot be read."""
    async with engine.connect() as conn:
        if not await tier_moves.has_folders(conn, job_id):
            return
        job = await get_job(conn, project_id, job_id)
        checkpoint_folders = [
            folder for folder in await list_folders(conn, job) if folder.checkpoint_id
        ]
    stopped = job.pause_requested_at or job.over_budget_at
    if stopped is None or job.state in JOB_TERMINAL:
        return
    with suppress(StorageError):
        for folder in checkpoint_folders:
            inspection = await inspect_folder(
                engine, services, project_id, job_id, folder.checkpoint_id
            )
            if inspection.presence is not Presence.GONE:
                require_online(inspection)
                return
        if checkpoint_folders:
            raise missing_folder_error(checkpoint_folders[0])


def require_online(inspection: FolderInspection) -> None:
    """Raise Archived, with every way back, unless the folder can be read.

    Raises CheckpointNotFound or ModelNotFound when nothing of it is left.
    """
    if inspection.presence is Presence.ONLINE:
        return
    if inspection.presence is Presence.GONE:
        raise missing_folder_error(inspection.folder)
    if inspection.presence is Presence.REHYDRATING:
        raise Archived(rehydration_message(inspection) + " Try again then.")
    name, folder = inspection.folder.name, inspection.folder
    standard, high = rehydration_quotes(inspection)
    raise Archived(
        f"{name[:1].upper()}{name[1:]} is archived. Bring it back first: {folder.command}, or "
        f'POST {folder.route} {{"tier": "hot"}}. That takes up to {format_hours(standard)} and '
        f'costs ${format_cost(standard)}; with "priority": "high" (--priority high) about '
        f"{format_hours(high)} and ${format_cost(high)}."
    )


def missing_message(job_id: str, subject: str) -> str:
    """Return the message about a deleted blob or folder."""
    return (
        f"{subject} of container {job_id} was deleted from the storage account. "
        "Restore it there (soft delete, versions), or train again."
    )


def missing_folder_error(folder: StoredFolder) -> CheckpointNotFound | ModelNotFound:
    """Return the error for a folder without blobs."""
    text = missing_message(folder.job_id, f"Folder {folder.path}")
    return CheckpointNotFound(text) if folder.checkpoint_id else ModelNotFound(text)


def rehydration_message(inspection: FolderInspection) -> str:
    """Return the sentence about a rehydration, with the time at which it ends."""
    name = inspection.folder.name
    expected_at = inspection.current_move.expected_at if inspection.current_move else None
    completion = f", at {expected_at:%Y-%m-%d %H:%M} UTC at the latest" if expected_at else ""
    priority = next((b.priority for b in inspection.blobs if b.priority), ArchivePriority.STANDARD)
    return (
        f"{name[:1].upper()}{name[1:]} is on its way back from the archive "
        f"({priority} priority{completion})."
    )


def rehydration_quotes(
    inspection: FolderInspection,
) -> tuple[storage_cost.Rehydration, storage_cost.Rehydration]:
    """Return cost and duration of a rehydration, with standard and with high priority."""
    standard, high = (
        storage_cost.quote_rehydration(inspection.blobs, p, inspection.prices)
        for p in ArchivePriority
    )
    return standard, high


def format_hours(rehydration: storage_cost.Rehydration) -> str:
    """Return the duration of a rehydration in hours, for a sentence."""
    return f"{rehydration.takes.total_seconds() / 3600:.1f}".removesuffix(".0") + " h"


def format_cost(rehydration: storage_cost.Rehydration) -> str:
    """Return the cost of a rehydration in dollars, to a hundredth of a cent."""
    return f"{rehydration.cost:.4f}"


def _not_found(job: JobRow, checkpoint_id: str | None) -> CheckpointNotFound | ModelNotFound:
    if checkpoint_id is None:
        return ModelNotFound(f"Job {job.id} is {job.state}: it has no model yet.")
    return CheckpointNotFound(
        f"Job {job.id} has no checkpoint {checkpoint_id!r:.80}. List them: "
        f"GET /v1/fine_tuning/jobs/{job.id}/checkpoints."
    )
