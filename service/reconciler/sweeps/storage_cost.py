"""Meters what jobs have stored: lists a few containers at a time, each at long intervals.

A job that goes on is looked at every hour, one that is over once a day, and any one right after
something of it was moved. What is billed in between follows from the rows of the last look.
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
from service.operations.storage.tiers import Outside
from service.pricing import storage_prices
from service.storage.store import LISTED, StorageError

log = logging.getLogger(__name__)
AT_ONCE = 10  # containers of one round: with a round every 10 s, one listing a second
LIVE = timedelta(hours=1)
OVER = timedelta(days=1)
_AFTER_FAULT = timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True)
class StorageMeters:
    """Holds nothing."""

    engine: AsyncEngine
    outside: Outside
    now: Callable[[], datetime]

    async def run_once(self) -> int:
        """Look at what is due, one after the other; return how many were."""
        prices: StoragePrices | None = None
        for looked in range(AT_ONCE):
            async with self.engine.begin() as conn:
                claims = await storage_cost.claim_due(conn, self.now(), 1)
            if not claims:
                return looked
            prices = await self.outside.read_prices() if not looked else prices
            with suppress(LeaseLost):  # another replica looks at it
                async with leases.renewing(self.engine, claims[0], self.now):
                    await self._look(claims[0], prices)
        return AT_ONCE

    async def _look(self, claim: Claim, prices: StoragePrices | None) -> None:
        """Without prices, what is there already goes on at those that it has."""
        job_id = claim.row_id
        try:
            blobs = await self.outside.store.list_stored(job_id, everything=True, most=LISTED)
        except StorageError as fault:
            log.warning("storage.not_listed", extra={"job": job_id, "cause": str(fault)})
            async with self.engine.begin() as conn:
                await storage_cost.postpone(conn, claim, self.now(), self.now() + _AFTER_FAULT)
            return
        now = self.now()
        async with self.engine.begin() as conn:
            job = await jobs.find(conn, job_id)
            over = job is None or job.state in JOB_TERMINAL
            before = await storage_cost.open_levels(conn, job_id)
            last_look = min(now, claim.row.looked_at or claim.row.began_at)
            found = levels_by_tier(blobs, prices or storage_prices.TABLE)
            found = found if prices else with_known_prices(found, before)
            news = level_changes(before, found, last_look, now)
            await storage_cost.record(conn, claim, news, now, now + (OVER if over else LIVE))
