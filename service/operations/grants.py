"""SAS URLs for nodes: the job's container to write, its inputs to read.

That of the job's container hangs on a policy, which is deleted when the attempt ends, where the
account has a key. Its inputs lie in containers of many jobs, which have too few policies for all:
those URLs end by themselves.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.jobs.jobs import JobRow
from service.operations import access_policies, regions
from service.operations.nodes import Standing
from service.storage.store import BlobStore, StorageError
from trainer.contract import Grants

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Granter:
    """Makes grants of one length of life."""

    engine: AsyncEngine
    store: BlobStore
    life: timedelta
    regional: Mapping[str, BlobStore] = field(default_factory=dict)  # region -> account there
    patience: float = 3.0  # seconds for a look at that account; the node waits for its answer

    async def grant(self, standing: Standing, now: datetime) -> Grants:
        """Fresh URLs for one node: the base model's from its region if it is there.

        Its attempt has a policy by now, as a rule. Who comes again may have found it refused.
        Raises StorageError.
        """
        job, attempt, expires_at = standing.job, standing.attempt, now + self.life
        if attempt.access_until is None or standing.came_again:
            await access_policies.settle(self.engine, self.store, job.id, self.life, now)
        near, held = await self._nearby(job, attempt.offering.region)
        inputs = {}
        for path in job.inputs:
            container, name = path.split("/", 1)
            store = near if path in held else self.store
            inputs[path] = await store.sas_url(
                container, name, permissions="r", expires_at=expires_at
            )
        job_url = await access_policies.container_url(self.store, job.id, attempt.id, expires_at)
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
