"""Report containers of unknown jobs to operators. None is deleted.

A restored database misses the newest jobs, so such a container may hold the only copy of a trained
model. A person decides (docs/runbook.md).
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
NAMES_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class ContainerWatch:
    """Logs each unknown container once."""

    engine: AsyncEngine
    store: BlobStore
    now: Callable[[], datetime]

    async def run_once(self) -> list[str]:
        """Log the containers that are new, and return their names."""
        now = self.now()
        try:
            names = await containers.list_unknown_containers(self.engine, self.store, now)
        except StorageError as fault:
            log.warning("containers.not_listed", extra={"cause": str(fault)})
            return []
        async with self.engine.begin() as conn:
            await alarms.record(conn, ALARM, names, now)
            new = await alarms.claim(conn, ALARM, names, now)
            if new:  # before the commit: a warning may be repeated, and is never lost
                log.warning(ALARM, extra={"count": len(new), "first": new[:NAMES_SHOWN]})
        return new
