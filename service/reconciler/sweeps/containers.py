"""Tells operators of containers whose jobs the database does not know. Nothing of them is deleted.

A database that was restored knows less than there is: what it takes for nobody's may be the only
copy of what a newer one had trained. A person looks at them (docs/runbook.md).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.cloud import alarms
from service.operations.storage import containers
from service.storage.store import BlobStore, StorageError

log = logging.getLogger(__name__)
ALARM = "containers.unknown"
SHOWN = 5  # names in the line


@dataclass(frozen=True, kw_only=True)
class ContainerWatch:
    """Tells of each container once."""

    engine: AsyncEngine
    store: BlobStore
    now: Callable[[], datetime]

    async def run_once(self) -> list[str]:
        """Tell of those that are new, and return them."""
        now = self.now()
        try:
            found = await containers.list_unknown_containers(self.engine, self.store, now)
        except StorageError as fault:
            log.warning("containers.not_listed", extra={"cause": str(fault)})
            return []
        async with self.engine.begin() as conn:
            await alarms.record(conn, ALARM, found, now)
            new = await alarms.claim(conn, ALARM, found, now)
            if new:  # before the commit: a warning may be repeated, and is never lost
                log.warning(ALARM, extra={"count": len(new), "first": new[:SHOWN]})
        return new
