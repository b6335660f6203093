"""Meter the stored bytes of jobs: list a few containers at a time, each at long intervals.

A live job is metered every hour, one that is over once a day, and any one right after a tier move.
In between, the cost follows from the rows of the last listing.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.core import leases
from service.db.core.leases import Claim
from service.db.jobs import jobs
from service.db.money import storage_cost
from service.domain.errors import LeaseLost
from service.domain.money.storage_cost import (
    StoragePrices,
    level_changes,
    levels_by_tier,
    with_known_prices,
)
from service.domain.states import JOB_TERMINAL
from service.operations.storage.tiers import StorageServices
from service.pricing import storage_prices
from service.storage.store import MAX_LISTED, StorageError

log = logging.getLogger(__name__)
BATCH_SIZE = 10  # containers of one round: with a round every 10 s, one listing a second
LIVE_INTERVAL = timedelta(hours=1)
ENDED_INTERVAL = timedelta(days=1)
_AFTER_FAULT = timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True)
class StorageMeters:
    """Meters due containers; has no state."""

    engine: AsyncEngine
    storage: StorageServices
    now: Callable[[], datetime]

    async def run_once(self) -> int:
        """Meter what is due, one container after the other; return their number."""
        prices: StoragePrices | None = None
        for metered in range(BATCH_SIZE):
            async with self.engine.begin() as conn:
                claims = await storage_cost.claim_due(conn, self.now(), 1)
            if not claims:
                return metered
            prices = await self.storage.read_prices() if not metered else prices
            with suppress(LeaseLost):  # another replica meters it
                async with leases.renewing(self.engine, claims[0], self.now):
                    await self._meter_container(claims[0], prices)
        return BATCH_SIZE

    async def _meter_container(self, claim: Claim, prices: StoragePrices | None) -> None:
        """Meter one container; without new prices, its blobs keep those that they have."""
        job_id = claim.row_id
        try:
            blobs = await self.storage.store.list_stored(job_id, everything=True, most=MAX_LISTED)
        except StorageError as fault:
            log.warning("storage.not_listed", extra={"job": job_id, "cause": str(fault)})
            async with self.engine.begin() as conn:
                await storage_cost.postpone(conn, claim, self.now(), self.now() + _AFTER_FAULT)
            return
        now = self.now()
        async with self.engine.begin() as conn:
            job = await jobs.find(conn, job_id)
            is_over = job is None or job.state in JOB_TERMINAL
            before = await storage_cost.open_levels(conn, job_id)
            last_look = min(now, claim.row.looked_at or claim.row.began_at)
            levels = levels_by_tier(blobs, prices or storage_prices.TABLE)
            levels = levels if prices else with_known_prices(levels, before)
            changes = level_changes(before, levels, last_look, now)
            await storage_cost.record(
                conn, claim, changes, now, now + (ENDED_INTERVAL if is_over else LIVE_INTERVAL)
            )
