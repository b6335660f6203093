"""Delete garbage of uncommitted saves: folders that HEAD does not name.

A folder is written by one generation, and HEAD can name it only while that generation has HEAD. So
a folder of an older generation that HEAD does not name is never named again. The time of its first
blob shows its age: before the newest generation was opened, it is of an older one.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.storage import retention
from service.db.storage.retention import RetentionTask
from service.operations.attempts import heads
from service.storage.store import MAX_LISTED, Blob, BlobStore, StorageError
from trainer.contract import MANIFEST, Head

log = logging.getLogger(__name__)
GRACE = timedelta(days=1)  # to inspect garbage, or to restore an older HEAD
CLOCK_SKEW = timedelta(hours=1)  # upper bound between Blob's clock and ours
PAGE_SIZE = 100  # jobs of one round
FOLDERS = ("checkpoints/", "models/")


@dataclass
class CheckpointSweep:
    """Collects garbage page by page; after a kill it starts again with the first page."""

    engine: AsyncEngine
    store: BlobStore
    now: Callable[[], datetime]
    _last_job_id: str = ""

    async def run_once(self) -> int:
        """Collect the garbage of a page of jobs; return the number of bytes freed."""
        before = self.now() - GRACE
        async with self.engine.connect() as conn:
            page = await retention.due(
                conn, before=before, after=self._last_job_id, limit=PAGE_SIZE
            )
        self._last_job_id = page[-1].job_id if len(page) == PAGE_SIZE else ""
        return sum([await self._collect_job(task) for task in page])

    async def _collect_job(self, task: RetentionTask) -> int:
        try:
            collected = await collect_garbage(self.store, task, self.now())
        except StorageError as fault:
            log.warning(
                "checkpoints.not_collected", extra={"job": task.job_id, "cause": str(fault)}
            )
            return 0
        except Exception:  # nodes write these blobs: one job's must not stop the other jobs
            log.warning("checkpoints.not_collected", extra={"job": task.job_id}, exc_info=True)
            return 0
        if not collected.has_recent_files:
            async with self.engine.begin() as conn:
                await retention.record_collected(conn, task)
        if collected.freed_bytes:
            log.info(
                "checkpoints.collected",
                extra={"job": task.job_id, "bytes": collected.freed_bytes},
            )
        return collected.freed_bytes


class CollectedGarbage(NamedTuple):
    """Result of collecting one job's garbage."""

    freed_bytes: int
    has_recent_files: bool  # of an ended job: nodes that are cut off write until their end


async def _is_behind(task: RetentionTask, head: Head) -> bool:
    """Return whether HEAD has generations that a restored database does not know."""
    has_newer = any(entry.generation > task.newest for entry in head.checkpoints)
    return has_newer or head.generation > task.newest + 1


async def collect_garbage(store: BlobStore, task: RetentionTask, now: datetime) -> CollectedGarbage:
    """Delete one job's garbage, each folder's manifest first.

    HEAD of a job that is over is fenced again, so that no node commits any more.
    """
    if task.is_over:
        await heads.fence(store, task.job_id, task.newest, forgotten=partial(_is_behind, task))
    freed, has_recent = 0, False
    for path, blobs in (await _list_folders(store, task.job_id)).items():
        old = _is_old(blobs, task, now)
        if not (old or task.is_over) or not await _is_garbage(store, task, path):
            continue
        has_recent |= not old
        for blob in sorted(blobs, key=lambda b: b.name != f"{path}/{MANIFEST}") if old else ():
            await store.delete(task.job_id, blob.name)
            freed += blob.size
    return CollectedGarbage(freed, has_recent)


async def _list_folders(store: BlobStore, job_id: str) -> dict[str, list[Blob]]:
    folders = defaultdict(list)
    for prefix in FOLDERS:
        for blob in await store.list_blobs(job_id, prefix, most=MAX_LISTED):
            folders["/".join(blob.name.split("/")[:2])].append(blob)
    return folders


def _is_old(blobs: Sequence[Blob], task: RetentionTask, now: datetime) -> bool:
    """Return whether a folder is of an older generation and was not written lately."""
    modified_times = [b.modified_at for b in blobs if b.modified_at is not None]
    is_older = task.is_over or min(modified_times) < task.opened_at - CLOCK_SKEW
    return is_older and max(modified_times) < now - GRACE


async def _is_garbage(store: BlobStore, task: RetentionTask, path: str) -> bool:
    """Return whether the folder is unused, by HEAD as read right before its deletion."""
    head, _ = await heads.read(store, task.job_id)
    return path == task.deleted or path not in head.paths | {task.loaded, task.model}
