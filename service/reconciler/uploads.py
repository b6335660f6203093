"""Deletes blobs of files that have no row: what is left of uploads that died, and of deletions.

Level-triggered: it compares what is in Blob with what is in the database. An upload writes its
row before its blob, so a blob without a row has nobody who still wants it; the grace is for
whoever writes the row of a small blob just after it. In another deployment's account it deletes
nothing: there, our database knows none of the files.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db import files, uploads
from service.operations import owner
from service.storage.store import BlobStore, StorageError

log = logging.getLogger(__name__)
STILL = timedelta(hours=1)  # an upload of which nothing came for so long is given up
GRACE = timedelta(hours=1)  # so long a blob must have been seen without a row


@dataclass(frozen=True, kw_only=True)
class UploadSweep:
    """Remembers what it saw without a row; a new process begins to wait anew."""

    engine: AsyncEngine
    store: BlobStore
    deployment: str
    now: Callable[[], datetime]
    _seen: dict[tuple[str, str], datetime] = field(default_factory=dict)  # name, ETag -> since
    _told: set[str] = field(default_factory=set)  # owners that it has complained of

    async def run_once(self) -> list[str]:
        """Delete what was seen for long enough; return the names."""
        now = self.now()
        async with self.engine.begin() as conn:
            for upload_id in await uploads.forget_still(conn, now - STILL):
                log.warning("uploads.given_up", extra={"file": upload_id})
        try:
            if not await self._is_ours():
                return []
            blobs = await self.store.list_blobs(files.CONTAINER)  # before the rows
            async with self.engine.connect() as conn:
                orphans = await files.without_row(conn, [b.name for b in blobs])
            return await self._collect([(b.name, b.etag) for b in blobs if b.name in orphans], now)
        except StorageError as fault:
            log.warning("uploads.sweep_failed", extra={"cause": str(fault)})
            return []

    async def _is_ours(self) -> bool:
        found = await owner.owner(self.store, self.deployment)
        if found != self.deployment and found not in self._told:
            self._told.add(found)
            log.error("uploads.not_ours", extra={"owner": found, "deployment": self.deployment})
        return found == self.deployment

    async def _collect(self, orphans: list[tuple[str, str]], now: datetime) -> list[str]:
        since = {blob: self._seen.get(blob, now) for blob in orphans}
        self._seen.clear()
        self._seen.update(since)
        deleted = []
        for name, etag in orphans:
            if now - since[name, etag] >= GRACE:
                log.info("uploads.orphan_deleted", extra={"file": name})
                await self.store.delete(files.CONTAINER, name)
                del self._seen[name, etag]
                deleted.append(name)
        return deleted
