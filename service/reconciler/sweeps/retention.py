"""Deletes what saves have left that were never committed: folders that HEAD does not name.

A folder is written by one generation, and HEAD comes to name it while that generation has HEAD, or
never. So one that HEAD does not name, and that is of an older generation than HEAD, is never named
again. How old it is, its first blob says: written before the generation was opened, it is older.
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
from service.storage.store import LISTED, Blob, BlobStore, StorageError
from trainer.contract import MANIFEST, Head

log = logging.getLogger(__name__)
GRACE = timedelta(days=1)  # so long somebody may look at it, or bring back an older HEAD
CLOCKS = timedelta(hours=1)  # more than Blob's clock and ours differ by
PAGE = 100  # jobs of one round
FOLDERS = ("checkpoints/", "models/")


@dataclass
class CheckpointSweep:
    """Holds nothing but its place in the list of jobs; killed anywhere, it begins again."""

    engine: AsyncEngine
    store: BlobStore
    now: Callable[[], datetime]
    _after: str = ""

    async def run_once(self) -> int:
        """Collect a page of jobs; return the bytes that were freed."""
        before = self.now() - GRACE
        async with self.engine.connect() as conn:
            page = await retention.due(conn, before=before, after=self._after, limit=PAGE)
        self._after = page[-1].job_id if len(page) == PAGE else ""
        return sum([await self._job(found) for found in page])

    async def _job(self, found: RetentionTask) -> int:
        try:
            swept = await collect(self.store, found, self.now())
        except StorageError as fault:
            log.warning(
                "checkpoints.not_collected", extra={"job": found.job_id, "cause": str(fault)}
            )
            return 0
        except Exception:  # of this job's blobs, which nodes write: the others have their turn
            log.warning("checkpoints.not_collected", extra={"job": found.job_id}, exc_info=True)
            return 0
        if not swept.young:
            async with self.engine.begin() as conn:
                await retention.record_collected(conn, found)
        if swept.freed:
            log.info("checkpoints.collected", extra={"job": found.job_id, "bytes": swept.freed})
        return swept.freed


class Swept(NamedTuple):
    """What was done about one job's garbage."""

    freed: int  # bytes
    young: bool  # a job that is over has some left: nodes that are cut off write until the end


async def _is_behind(found: RetentionTask, head: Head) -> bool:
    """Whether HEAD has had generations of which a restored database does not know."""
    named = any(entry.generation > found.newest for entry in head.checkpoints)
    return named or head.generation > found.newest + 1


async def collect(store: BlobStore, found: RetentionTask, now: datetime) -> Swept:
    """Delete one job's garbage, each folder's manifest first.

    HEAD of a job that is over is taken once more, so that nobody commits any more.
    """
    if found.is_over:
        await heads.fence(store, found.job_id, found.newest, forgotten=partial(_is_behind, found))
    freed, young = 0, False
    for path, blobs in (await _folders(store, found.job_id)).items():
        old = _is_old(blobs, found, now)
        if not (old or found.is_over) or not await _is_garbage(store, found, path):
            continue
        young |= not old
        for blob in sorted(blobs, key=lambda b: b.name != f"{path}/{MANIFEST}") if old else ():
            await store.delete(found.job_id, blob.name)
            freed += blob.size
    return Swept(freed, young)


async def _folders(store: BlobStore, job_id: str) -> dict[str, list[Blob]]:
    folders = defaultdict(list)
    for prefix in FOLDERS:
        for blob in await store.list_blobs(job_id, prefix, most=LISTED):
            folders["/".join(blob.name.split("/")[:2])].append(blob)
    return folders


def _is_old(blobs: Sequence[Blob], found: RetentionTask, now: datetime) -> bool:
    """Return whether a folder is of an older generation and was not written to lately."""
    written = [b.modified_at for b in blobs if b.modified_at is not None]
    of_an_older = found.is_over or min(written) < found.opened_at - CLOCKS
    return of_an_older and max(written) < now - GRACE


async def _is_garbage(store: BlobStore, found: RetentionTask, path: str) -> bool:
    """Asked of HEAD itself, just before: what it names, and what is loaded from it, stays."""
    head, _ = await heads.read(store, found.job_id)
    return path == found.deleted or path not in head.paths | {found.loaded, found.model}
