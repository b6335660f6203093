"""Tells operators of containers whose jobs the database does not know. Nothing of them is deleted.

A database that was restored knows less than there is: what it takes for nobody's may be the only
copy of what a newer one had trained. A person looks at them (docs/runbook.md).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncEngine

from service.operations import containers
from service.storage.store import BlobStore, StorageError

log = logging.getLogger(__name__)
SHOWN = 5  # names in the line


@dataclass(frozen=True, kw_only=True)
class ContainerWatch:
    """Holds nothing but what it has complained of."""

    engine: AsyncEngine
    store: BlobStore
    now: Callable[[], datetime]
    _told: set[str] = field(default_factory=set)

    async def run_once(self) -> list[str]:
        """Tell of those that there are, and return them.

        Once per process: it stays so until somebody looks. Then there is nothing to look for.
        """
        if self._told:
            return []
        try:
            found = await containers.unknown(self.engine, self.store, self.now())
        except StorageError as fault:
            log.warning("containers.not_listed", extra={"cause": str(fault)})
            return []
        if found:
            self._told.update(found)
            log.warning("containers.unknown", extra={"count": len(found), "first": found[:SHOWN]})
        return found
