"""SAS URLs for nodes: the job's container to write, its inputs to read."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from service.db.jobs import JobRow
from service.operations import regions
from service.storage.store import BlobStore, StorageError
from trainer.contract import Grants

log = logging.getLogger(__name__)
_WRITE = "racwdl"  # Azure's letters: read, add, create, write, delete, list


@dataclass(frozen=True, kw_only=True)
class Granter:
    """Makes grants of one length of life."""

    store: BlobStore
    life: timedelta
    regional: Mapping[str, BlobStore] = field(default_factory=dict)  # region -> account there
    patience: float = 3.0  # seconds for a look at that account; the node waits for its answer

    async def grant(self, job: JobRow, region: str, now: datetime) -> Grants:
        """Fresh URLs for one node of the job: the base model's from the region if it is there."""
        expires_at = now + self.life
        near, held = await self._nearby(job, region)
        inputs = {}
        for path in job.inputs:
            container, name = path.split("/", 1)
            store = near if path in held else self.store
            inputs[path] = store.sas_url(container, name, permissions="r", expires_at=expires_at)
        job_url = self.store.sas_url(job.id, permissions=_WRITE, expires_at=expires_at)
        return Grants(job=job_url, inputs=inputs, expires_at=expires_at.timestamp())

    def wears_out(self, granted_at: datetime, now: datetime) -> bool:
        """True from half of the life on: time to send fresh ones."""
        return now - granted_at > self.life / 2

    def renews(self, granted_at: datetime, now: datetime) -> bool:
        """True for a minute of each hour from then on: for who hears nothing else meanwhile.

        More often where they live less long.
        """
        every = min(timedelta(hours=1), self.life / 8)
        return self.wears_out(granted_at, now) and (now - granted_at) % every < timedelta(minutes=1)

    async def _nearby(self, job: JobRow, region: str) -> tuple[BlobStore, frozenset[str]]:
        """The region's account and which of the inputs it has; none where that is not known."""
        near = self.regional.get(region, self.store)
        if near is self.store:
            return near, frozenset()
        try:
            async with asyncio.timeout(self.patience):
                return near, await regions.held(near, job.inputs)
        except (StorageError, ValueError, TimeoutError) as fault:
            log.warning("region.passed_over", extra={"region": region, "cause": repr(fault)})
            return near, frozenset()
