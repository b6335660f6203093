"""/v1/fine_tuning/jobs/{id}/storage: blobs by access tier; .../tier: move a folder."""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from service.api.deps import Now, Parts, PartsDep, Reader, Writer
from service.api.http.requests import JsonRoute
from service.api.models import tier_views
from service.api.schemas.storage import Storage, TierMove
from service.db.projects.keys import Caller
from service.db.storage.tier_moves import open_of
from service.domain.storage.access_tiers import AccessTier, ArchivePriority
from service.operations.jobs import jobs
from service.operations.storage import tier_moves, tiers
from service.operations.storage.tier_moves import MoveRequest
from service.operations.storage.tiers import FolderInspection
from service.pricing import storage_prices
from service.storage.store import MAX_LISTED

router = APIRouter(prefix="/fine_tuning/jobs", tags=["Storage"], route_class=JsonRoute)


class TierRequest(BaseModel):
    """The target tier. With ``dry_run`` nothing is moved, and the answer is the same."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    tier: Literal["hot", "cool", "cold", "archive"]
    priority: Literal["standard", "high"] = "standard"
    dry_run: bool = False


@router.get("/{job_id}/storage", operation_id="retrieveFineTuningStorage")
async def get_storage(parts: PartsDep, caller: Reader, now: Now, job_id: str) -> Storage:
    """Return every checkpoint and the model with tier and state, as Blob lists them now."""
    async with parts.reading.connect() as conn:
        job = await jobs.get(conn, caller.project_id, job_id)
        folders = await tiers.list_folders(conn, job)
        under_way = await open_of(conn, job_id)
        overview = await jobs.get_with_facts(conn, caller.project_id, job_id, now)
    prices = await parts.storage.read_prices() or storage_prices.TABLE
    blobs = await parts.store.list_stored(job_id, most=MAX_LISTED)
    inspections = [
        FolderInspection(
            folder=folder,
            blobs=[b for b in blobs if b.name.startswith(f"{folder.path}/")],
            prices=prices,
            current_move=under_way.get(folder.path),
        )
        for folder in folders
    ]
    return tier_views.storage(overview, blobs, inspections, parts.account)


@router.post("/{job_id}/checkpoints/{checkpoint_id}/tier", operation_id="moveFineTuningCheckpoint")
async def move_checkpoint(
    parts: PartsDep,
    caller: Writer,
    job_id: str,
    checkpoint_id: str,
    body: TierRequest,
) -> TierMove:
    """Move a checkpoint to another tier; out of the archive this rehydrates it."""
    return await _move(parts, caller, job_id, checkpoint_id, body)


@router.post("/{job_id}/model/tier", operation_id="moveFineTuningModel")
async def move_model(parts: PartsDep, caller: Writer, job_id: str, body: TierRequest) -> TierMove:
    """Move the final model to another tier; out of the archive this rehydrates it."""
    return await _move(parts, caller, job_id, None, body)


async def _move(
    parts: Parts, caller: Caller, job_id: str, checkpoint_id: str | None, body: TierRequest
) -> TierMove:
    request = MoveRequest(
        project_id=caller.project_id,
        job_id=job_id,
        checkpoint_id=checkpoint_id,
        tier=AccessTier(body.tier),
        priority=ArchivePriority(body.priority),
    )
    if body.dry_run:
        inspection, quote = await tier_moves.quote_move(
            parts.engine, parts.storage, request, parts.now
        )
        move = None
    else:
        inspection, quote, move = await tier_moves.request_move(
            parts.engine, parts.storage, request, parts.now
        )
    members = tier_views.move(inspection, request.tier, request.priority, quote, move)
    return TierMove(**members, dry_run=body.dry_run, account=tier_views.account(parts.account))
