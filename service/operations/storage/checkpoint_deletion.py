"""Delete a checkpoint by the name that it has as a model."""

from dataclasses import replace
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.jobs import events, job_versions, jobs
from service.db.jobs.jobs import JobRow
from service.db.storage import checkpoints
from service.domain.errors import Conflict, ModelNotFound
from service.domain.models import lineage
from service.domain.models.lineage import ModelSource
from service.domain.states import JOB_TERMINAL
from service.operations.attempts import heads
from service.operations.models import checkpoint_models, model_references
from service.storage.store import MAX_LISTED, BlobStore
from trainer.contract import HEAD, MANIFEST


async def delete(
    engine: AsyncEngine, store: BlobStore, project_id: str, name: str, now: datetime
) -> int:
    """Delete a checkpoint of a job that is over; return the number of bytes freed.

    Marks the row first, so that no new job starts from it, then removes it from HEAD. Blobs that a
    killed process left are deleted by the next request or by the sweep of checkpoints. Raises
    ModelNotFound, and Conflict while the job is not over or another job reads the checkpoint.
    """
    source = lineage.source(name)
    async with engine.begin() as conn:
        job = await checkpoint_models.find_maker(conn, project_id, name)
        if job is None or source.step is None:
            raise ModelNotFound(
                f"No checkpoint {name!r:.80} of a job of yours. See GET /v1/models."
            )
        _require_ended(job, name)
        paths = await checkpoints.paths_of_step(conn, job.id, source.step)
        await _require_unread(conn, project_id, source, list(paths), name)
        if any(paths.values()):
            await _mark_deleted(conn, job, source.step, name, now)
    if paths:
        await _remove_from_head(store, job.id, paths)
    freed = sum([await _delete_folder(store, job.id, path) for path in paths])
    if not freed and not any(paths.values()):
        raise ModelNotFound(f"There is no checkpoint {name!r:.80} any more. See GET /v1/models.")
    return freed


def _require_ended(job: JobRow, name: str) -> None:
    if job.state not in JOB_TERMINAL:
        raise Conflict(
            f"Job {job.id} is {job.state} and may resume from {name}: cancel it, or wait for "
            "its end."
        )


async def _require_unread(
    conn: AsyncConnection, project_id: str, source: ModelSource, paths: list[str], name: str
) -> None:
    for path in paths:
        await jobs.acquire_lock(conn, model_references.lock_key(source.job_id, path))
    if needed := await model_references.list_readers(conn, project_id, source):
        raise Conflict(f"{name} is read by {', '.join(needed)}: cancel it, or wait for its end.")


async def _mark_deleted(
    conn: AsyncConnection, job: JobRow, step: int, name: str, now: datetime
) -> None:
    await jobs.schedule_collection(conn, job.id)
    await checkpoints.drop(conn, job.id, step, now)
    await job_versions.raise_version(conn, job.id, now)
    await events.add(conn, job.id, now, "checkpoint.deleted", f"Checkpoint {name} was deleted")


async def _remove_from_head(store: BlobStore, job_id: str, paths: dict[str, bool]) -> None:
    """Remove the paths from HEAD; no node commits to a job that is over."""
    head, etag = await heads.read(store, job_id)
    remaining = tuple(c for c in head.checkpoints if c.path not in paths)
    if remaining != head.checkpoints:
        new = replace(head, checkpoints=remaining)
        await store.write(job_id, HEAD, new.to_json().encode(), if_match=etag)


async def _delete_folder(store: BlobStore, job_id: str, path: str) -> int:
    blobs = await store.list_blobs(job_id, f"{path}/", most=MAX_LISTED)
    for blob in sorted(blobs, key=lambda b: b.name != f"{path}/{MANIFEST}"):
        await store.delete(job_id, blob.name)
    return sum(blob.size for blob in blobs)
