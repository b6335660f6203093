"""Admit queued jobs as soon as there is room, and read the free Spot cores from Azure.

Every replica is notified of a change; the one that holds the turn runs the admission round.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import uuid4

from sqlalchemy.ext.asyncio import AsyncEngine

from service.cloud.provider import CloudError, CloudProvider
from service.db.queue import queue, quotas
from service.domain.queue.admission import BEAT, NO_QUOTA, ProjectQuota
from service.operations.queue import admission

log = logging.getLogger(__name__)
_TURN_LEASE = 3 * BEAT  # until another replica takes over from one that died
_READ_INTERVAL = timedelta(minutes=1)  # between two reads of a region's cores


@dataclass(kw_only=True)
class Admissions:
    """Runs admission rounds; one instance per process."""

    engine: AsyncEngine
    cloud: CloudProvider
    now: Callable[[], datetime]
    default_quota: ProjectQuota = NO_QUOTA  # of a project without a quota of its own
    regions: tuple[str, ...] = ()
    replica_name: str = field(default_factory=lambda: uuid4().hex)

    async def run_once(self) -> int:
        """Admit the jobs that may start, if it is this replica's turn; return their number."""
        now = self.now()
        async with self.engine.begin() as conn:
            if not await queue.acquire_lease(conn, self.replica_name, now, _TURN_LEASE):
                return 0
        async with self.engine.begin() as conn:
            return await admission.admit_waiting_jobs(conn, self.default_quota, now)

    async def read_cores(self) -> None:
        """Read the Spot cores of each region from Azure and store them for all replicas.

        One replica reads a region at a time.
        """
        for region in self.regions:
            async with self.engine.begin() as conn:
                if not await quotas.claim_region(conn, region, self.now(), _READ_INTERVAL):
                    continue
            try:
                cores = await self.cloud.spot_cores(region)
            except CloudError as fault:  # the last reading stays valid for a while
                log.warning("queue.no_quota", extra={"region": region, "cause": str(fault)})
                continue
            async with self.engine.begin() as conn:
                await quotas.record_usage(conn, region, cores.limit, cores.used, self.now())
