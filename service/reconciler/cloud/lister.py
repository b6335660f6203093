"""List all scale sets at once instead of one by one; wake the attempts whose set has changed.

Every reconciler runs this. In each round one of them asks the cloud, and all read the answer.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncEngine

from service.cloud.provider import CloudError, CloudProvider
from service.db.attempts import attempts
from service.db.cloud import scale_set_cache
from service.domain.cloud.scale_set_list import ScaleSetList, has_changed

log = logging.getLogger(__name__)


@dataclass
class Lister:
    """Publishes and reads the list of all scale sets; holds the newest one."""

    engine: AsyncEngine
    cloud: CloudProvider
    interval: timedelta
    now: Callable[[], datetime]
    newest_list: ScaleSetList | None = None

    async def run_once(self) -> None:
        """Ask the cloud if it is this process's turn, then read the newest list."""
        async with self.engine.begin() as conn:
            is_claimed = await scale_set_cache.claim(conn, self.now(), self.interval)
        if is_claimed:
            await self._publish_list()
        async with self.engine.connect() as conn:
            current = self.fresh_list()  # None: any list will do
            after = current.listed_at if current else None
            listing = await scale_set_cache.latest(conn, after)
        if listing and listing.is_fresh(self.now(), self.interval):
            self.newest_list = listing

    def fresh_list(self) -> ScaleSetList | None:
        """Return the list while it is fresh."""
        listing = self.newest_list
        return listing if listing and listing.is_fresh(self.now(), self.interval) else None

    async def _publish_list(self) -> None:
        asked_at = self.now()
        try:
            sets = await self.cloud.list_owned()
        except CloudError as fault:  # then each set is observed alone
            log.warning("lister.failed", extra={"cause": str(fault)})
            return
        async with self.engine.begin() as conn:
            await scale_set_cache.publish(conn, asked_at, sets, self.now() + self.interval)
        async with self.engine.connect() as conn:
            listing = await scale_set_cache.latest(conn, None)
            rows = await scale_set_cache.known_scale_sets(conn)
        assert listing is not None, "it was just published"
        changed = [i for i, cached in rows if has_changed(cached, listing.sets.get(cached.name))]
        async with self.engine.begin() as conn:
            await attempts.request_reread(conn, changed, self.now())
