"""Deletes scale sets that no live attempt owns: the backstop for every leak nobody foresaw."""

import logging
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncEngine

from service.cloud.provider import CloudError, CloudProvider, ScaleSetNotFound
from service.db import attempts
from service.domain.fleet import ScaleSetPhase, scale_set_name

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class OrphanSweep:
    """Compares what Azure lists under our tag with what the database knows."""

    engine: AsyncEngine
    cloud: CloudProvider

    async def run_once(self) -> list[str]:
        """Begin deleting every orphan; return their names."""
        try:
            owned = await self.cloud.list_owned()  # list first: the row is older than its set
        except CloudError as fault:
            log.warning("sweep.list_failed", extra={"cause": str(fault)})
            return []
        async with self.engine.connect() as conn:
            live = {scale_set_name(i) for i in await attempts.live_ids(conn)}
        orphans = [s for s in owned if s.name not in live]
        for orphan in orphans:
            if orphan.phase is not ScaleSetPhase.DELETING:
                log.error("sweep.orphan", extra={"scale_set": orphan.name})
                with suppress(ScaleSetNotFound):
                    await self._delete(orphan.name)
        return [o.name for o in orphans]

    async def _delete(self, name: str) -> None:
        try:
            await self.cloud.delete(name)
        except ScaleSetNotFound:
            raise
        except CloudError as fault:
            log.warning("sweep.delete_failed", extra={"scale_set": name, "cause": str(fault)})
