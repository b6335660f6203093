"""Looks after the queue: lets jobs in as soon as there is room, and reads what Azure has left.

Every replica hears that something has changed; the one whose turn it is looks.
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
from service.operations import admission

log = logging.getLogger(__name__)
_TURN = 3 * BEAT  # until another replica takes over from one that died
_READ = timedelta(minutes=1)  # what Azure says of a region's cores


@dataclass(kw_only=True)
class Admissions:
    """One per process."""

    engine: AsyncEngine
    cloud: CloudProvider
    now: Callable[[], datetime]
    usual: ProjectQuota = NO_QUOTA  # of a project that was given none
    regions: tuple[str, ...] = ()
    replica: str = field(default_factory=lambda: uuid4().hex)  # the name of this one

    async def run_once(self) -> int:
        """Let in whoever may, if it is this process's turn; return how many."""
        now = self.now()
        async with self.engine.begin() as conn:
            if not await queue.is_mine(conn, self.replica, now, _TURN):
                return 0
        async with self.engine.begin() as conn:
            return await admission.admit_waiting_jobs(conn, self.usual, now)

    async def read_cores(self) -> None:
        """Ask Azure how many Spot cores are left, one replica for each region; all read it."""
        for region in self.regions:
            async with self.engine.begin() as conn:
                if not await quotas.claim_region(conn, region, self.now(), _READ):
                    continue
            try:
                found = await self.cloud.spot_cores(region)
            except CloudError as fault:  # what was read last goes on to hold for a while
                log.warning("queue.no_quota", extra={"region": region, "cause": str(fault)})
                continue
            async with self.engine.begin() as conn:
                await quotas.learn(conn, region, found.limit, found.used, self.now())
