"""SAS URLs for nodes: the job's container to write, its inputs to read.

Where the account has a key, the container's URL depends on a policy that is deleted when the
attempt ends. Inputs lie in containers that many jobs share, and a container has too few policies
for all of them: those URLs expire by themselves.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.jobs.jobs import JobRow
from service.operations.attempts import access_policies
from service.operations.models import regions
from service.operations.nodes.nodes import Standing
from service.storage.store import BlobStore, StorageError
from trainer.contract import Grants

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Granter:
    """Makes grants with one lifetime."""

    engine: AsyncEngine
    store: BlobStore
    lifetime: timedelta
    regional: Mapping[str, BlobStore] = field(default_factory=dict)  # region -> account there
    timeout: float = 3.0  # seconds for a request to that account, while the node waits

    async def grant(self, standing: Standing, now: datetime) -> Grants:
        """Return fresh URLs for one node; base models come from the nearest account."""
        job, attempt, expires_at = standing.job, standing.attempt, now + self.lifetime
        if attempt.access_until is None or standing.was_known:
            await access_policies.update_policies(
                self.engine, self.store, job.id, self.lifetime, now
            )
        regional_store, copied_inputs = await self._find_regional_store(
            job, attempt.offering.region
        )
        inputs = {}
        for path in job.inputs:
            container, name = path.split("/", 1)
            store = regional_store if path in copied_inputs else self.store
            inputs[path] = await store.sas_url(
                container, name, permissions="r", expires_at=expires_at
            )
        job_url = await access_policies.container_url(self.store, job.id, attempt.id, expires_at)
        return Grants(job=job_url, inputs=inputs, expires_at=expires_at.timestamp())

    def should_renew(self, granted_at: datetime, now: datetime) -> bool:
        """Return whether half of the lifetime has passed, so that fresh URLs are due."""
        return now - granted_at > self.lifetime / 2

    def is_renewal_minute(self, granted_at: datetime, now: datetime) -> bool:
        """Return whether to renew in this minute, for nodes without any new directive.

        True for one minute of each hour after half of the lifetime; more often for short lifetimes.
        """
        interval = min(timedelta(hours=1), self.lifetime / 8)
        return self.should_renew(granted_at, now) and (now - granted_at) % interval < timedelta(
            minutes=1
        )

    async def _find_regional_store(
        self, job: JobRow, region: str
    ) -> tuple[BlobStore, frozenset[str]]:
        """Return the region's account and the inputs that it has; none where that is unknown."""
        regional_store = self.regional.get(region, self.store)
        if regional_store is self.store:
            return regional_store, frozenset()
        try:
            async with asyncio.timeout(self.timeout):
                return regional_store, await regions.list_copied_inputs(regional_store, job.inputs)
        except (StorageError, ValueError, TimeoutError) as fault:
            log.warning("region.passed_over", extra={"region": region, "cause": repr(fault)})
            return regional_store, frozenset()
