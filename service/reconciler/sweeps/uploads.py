"""Deletes the blobs that the database knows to be dead: of uploads given up and of deleted files.

It also ends what has no time left: uploads that stand still, and files that expire.

Level-triggered: it compares what is in Blob with what is in the database. A blob of which the
database knows nothing is left alone: a new or restored database knows less than there is.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.files import files, uploads
from service.operations.files.files import expire
from service.storage.store import BlobStore, StorageError

log = logging.getLogger(__name__)
STILL = uploads.LIFE  # an upload of which nothing came for so long is given up
GRACE = timedelta(hours=1)  # so long a blob may still appear of an upload that was given up


@dataclass(frozen=True, kw_only=True)
class UploadSweep:
    """Holds nothing but what it has complained of."""

    engine: AsyncEngine
    store: BlobStore
    now: Callable[[], datetime]
    _told: set[str] = field(default_factory=set)

    async def run_once(self) -> list[str]:
        """Delete what is dead; return the names."""
        now = self.now()
        async with self.engine.begin() as conn:
            for upload_id in await uploads.give_up_still(conn, now - STILL, now):
                log.warning("uploads.given_up", extra={"file": upload_id})
        for file_id in await expire(self.engine, now):
            log.info("files.expired", extra={"file": file_id})
        try:
            await self._discard()
            blobs = await self.store.list_blobs(files.CONTAINER)  # before the rows
            async with self.engine.begin() as conn:
                dead, unknown = await files.dead_and_unknown(conn, [b.name for b in blobs])
                await uploads.forget(conn, now - GRACE, kept=dead)
            self._report(unknown)
            await self._delete(dead)
        except StorageError as fault:
            log.warning("uploads.sweep_failed", extra={"cause": str(fault)})
            return []
        return dead

    def _report(self, unknown: list[str]) -> None:
        """Once per process: it stays so until somebody looks."""
        if unknown and not self._told:
            self._told.add(unknown[0])
            log.warning("uploads.unknown", extra={"count": len(unknown), "file": unknown[0]})

    async def _discard(self) -> None:
        """Drop staged blocks as long as the row is there: a part on its way may bring more."""
        async with self.engine.connect() as conn:
            given_up = await uploads.given_up_in_parts(conn)
        for upload_id in given_up:
            await self.store.discard(files.CONTAINER, upload_id)

    async def _delete(self, dead: list[str]) -> None:
        for name in dead:
            await self.store.delete(files.CONTAINER, name)
            log.info("uploads.deleted", extra={"file": name})
