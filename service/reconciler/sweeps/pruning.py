"""Delete old rows: events and metrics of jobs that ended long ago, and old prices and bills.

The job itself stays, with its plan, its cost and its result file, which has the metrics too.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.files import preflights
from service.db.jobs import plans
from service.db.monitoring import event_pruning
from service.db.monitoring.event_pruning import PrunedTable

log = logging.getLogger(__name__)
PAGE_SIZE = 100  # jobs between two checks of the time limit
TIME_LIMIT = timedelta(minutes=10)  # of a round: old rows can wait, and PostgreSQL has other work
CHECK_RETENTION = timedelta(days=90)  # of rows; later a job with the same files checks them again
PLAN_RETENTION = timedelta(days=7)  # after they expired: until then the error says when
PRICE_RETENTION = timedelta(days=400)  # a reconciliation shows 90 days


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """Deletes old rows; has no state. After a kill it starts again; two may run at once."""

    engine: AsyncEngine
    retention_by_table: Mapping[PrunedTable, timedelta]  # after the end of their job
    now: Callable[[], datetime]

    async def run_once(self) -> int:
        """Prune due rows, a page of each kind in turn, for at most TIME_LIMIT.

        Returns the number of jobs whose rows were pruned, summed over kinds.
        """
        until, pruned = self.now() + TIME_LIMIT, 0
        async with self.engine.begin() as conn:
            now = self.now()
            await event_pruning.delete_market_rows(conn, now - PRICE_RETENTION)
            await preflights.prune(conn, now - CHECK_RETENTION)
            await plans.prune(conn, now - PLAN_RETENTION)
        while self.now() < until:
            pages = [
                await self._prune_page(rows, retention)
                for rows, retention in self.retention_by_table.items()
            ]
            pruned += sum(pages)
            if max(pages, default=0) < PAGE_SIZE:
                break
        return pruned

    async def _prune_page(self, rows: PrunedTable, retention: timedelta) -> int:
        async with self.engine.connect() as conn:
            page = await event_pruning.jobs_to_prune(conn, rows, self.now() - retention, PAGE_SIZE)
        for job_id in page:
            await self._prune_job(rows, job_id)
        if page:
            log.info("rows.pruned", extra={"rows": str(rows), "jobs": len(page)})
        return len(page)

    async def _prune_job(self, rows: PrunedTable, job_id: str) -> None:
        is_done = False
        while not is_done:
            async with self.engine.begin() as conn:
                is_done = await event_pruning.delete_some(conn, rows, job_id)
