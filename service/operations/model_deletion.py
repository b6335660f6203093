"""Deletion of what a job has made: it costs money for as long as it lies in Blob."""

from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.jobs import events, jobs
from service.domain.errors import Conflict, ModelNotFound
from service.domain.models import lineage
from service.operations import checkpoint_deletion, holds, models
from service.storage.store import LISTED, BlobStore
from trainer.contract import MANIFEST


async def delete(
    engine: AsyncEngine, store: BlobStore, project_id: str, name: str, now: datetime
) -> int:
    """Delete what a job has made; return the bytes that were freed. To do it twice is harmless.

    The mark is written first: from then on nobody begins with the model, and what a killed process
    has left is deleted by the next request or by the sweep of checkpoints. Raises ModelNotFound,
    and Conflict while another job reads the model.
    """
    if lineage.source(name).is_checkpoint:
        return await checkpoint_deletion.delete(engine, store, project_id, name, now)
    async with engine.begin() as conn:
        job = await models.made_as(conn, project_id, name)
        if job is None or job.result is None or models.full_name(job) != name:
            raise ModelNotFound(f"No model {name!r:.80} of a job of yours. See GET /v1/models.")
        path = str(job.result["path"])
        await jobs.take_turn(conn, holds.turn(job.id, path))
        if needed := await holds.needed_by(conn, project_id, lineage.source(name)):
            raise Conflict(
                f"{name} is read by {', '.join(needed)}: cancel it, or wait for its end."
            )
        if not lineage.is_deleted(job.result):
            await jobs.mark_model_deleted(conn, job.id, now)
            await events.add(conn, job.id, now, "model.deleted", f"Model {name} was deleted")
    blobs = await store.list_blobs(job.id, f"{path}/", most=LISTED)
    for blob in sorted(blobs, key=lambda b: b.name != f"{path}/{MANIFEST}"):
        await store.delete(job.id, blob.name)
    return sum(blob.size for blob in blobs)
