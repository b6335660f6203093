"""Delete the blobs of abandoned uploads and of deleted files.

Also abandons uploads without progress, and expires files.

Level-triggered: it compares Blob with the database. A blob that the database does not know is left
alone: a new or restored database knows less than there is.
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
ABANDONED_AFTER = uploads.LIFE  # without progress
GRACE = timedelta(hours=1)  # until no blob of an abandoned upload can appear any more


@dataclass(frozen=True, kw_only=True)
class UploadSweep:
    """Sweeps uploads and files; remembers whether it has logged unknown blobs."""

    engine: AsyncEngine
    store: BlobStore
    now: Callable[[], datetime]
    _logged: set[str] = field(default_factory=set)

    async def run_once(self) -> list[str]:
        """Delete dead blobs; return their names."""
        now = self.now()
        async with self.engine.begin() as conn:
            for upload_id in await uploads.give_up_still(conn, now - ABANDONED_AFTER, now):
                log.warning("uploads.given_up", extra={"file": upload_id})
        for file_id in await expire(self.engine, now):
            log.info("files.expired", extra={"file": file_id})
        try:
            await self._discard_blocks()
            blobs = await self.store.list_blobs(files.CONTAINER)  # before the rows
            async with self.engine.begin() as conn:
                dead, unknown = await files.dead_and_unknown(conn, [b.name for b in blobs])
                await uploads.forget(conn, now - GRACE, retained=dead)
            self._log_unknown(unknown)
            await self._delete_blobs(dead)
        except StorageError as fault:
            log.warning("uploads.sweep_failed", extra={"cause": str(fault)})
            return []
        return dead

    def _log_unknown(self, unknown: list[str]) -> None:
        """Log unknown blobs once per process: they stay until a person acts."""
        if unknown and not self._logged:
            self._logged.add(unknown[0])
            log.warning("uploads.unknown", extra={"count": len(unknown), "file": unknown[0]})

    async def _discard_blocks(self) -> None:
        """Discard staged blocks as long as the row exists: a late part may add more."""
        async with self.engine.connect() as conn:
            given_up = await uploads.given_up_in_parts(conn)
        for upload_id in given_up:
            await self.store.discard(files.CONTAINER, upload_id)

    async def _delete_blobs(self, dead: list[str]) -> None:
        for name in dead:
            await self.store.delete(files.CONTAINER, name)
            log.info("uploads.deleted", extra={"file": name})
