"""Delete the model that a job has made, which costs money in Blob."""

from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.jobs import events, jobs
from service.domain.errors import Conflict, ModelNotFound
from service.domain.models import lineage
from service.operations.models import model_references, models
from service.operations.storage import checkpoint_deletion
from service.storage.store import MAX_LISTED, BlobStore
from trainer.contract import MANIFEST


async def delete(
    engine: AsyncEngine, store: BlobStore, project_id: str, name: str, now: datetime
) -> int:
    """Delete a job's model or checkpoint; return the number of bytes freed. Repeating is harmless.

    Writes the mark first, so that no new job starts from the model. Blobs that a killed process
    left are deleted by the next request or by the sweep of checkpoints. Raises ModelNotFound, and
    Conflict while another job reads the model.
    """
    if lineage.source(name).is_checkpoint:
        return await checkpoint_deletion.delete(engine, store, project_id, name, now)
    async with engine.begin() as conn:
        job = await models.find_maker(conn, project_id, name)
        if job is None or job.result is None or models.full_name(job) != name:
            raise ModelNotFound(f"No model {name!r:.80} of a job of yours. See GET /v1/models.")
        path = str(job.result["path"])
        await jobs.acquire_lock(conn, model_references.lock_key(job.id, path))
        if needed := await model_references.list_readers(conn, project_id, lineage.source(name)):
            raise Conflict(
                f"{name} is read by {', '.join(needed)}: cancel it, or wait for its end."
            )
        if not lineage.is_deleted(job.result):
            await jobs.mark_model_deleted(conn, job.id, now)
            await events.add(conn, job.id, now, "model.deleted", f"Model {name} was deleted")
    blobs = await store.list_blobs(job.id, f"{path}/", most=MAX_LISTED)
    for blob in sorted(blobs, key=lambda b: b.name != f"{path}/{MANIFEST}"):
        await store.delete(job.id, blob.name)
    return sum(blob.size for blob in blobs)
