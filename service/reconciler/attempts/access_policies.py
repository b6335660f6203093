"""Give attempts access to their job's container before their machines boot, and revoke it.

Level-triggered: it compares the rows of attempts with those of their policies.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.storage import access_policies as rows
from service.operations.attempts import access_policies
from service.storage.store import BlobStore, StorageError

log = logging.getLogger(__name__)
PAGE_SIZE = 500  # jobs of one round
CONCURRENCY = 16


@dataclass(frozen=True, kw_only=True)
class AccessPolicies:
    """Updates access policies; has no state."""

    engine: AsyncEngine
    store: BlobStore
    lifetime: timedelta  # of a policy; renewed at half of it
    now: Callable[[], datetime]

    async def run_once(self) -> list[str]:
        """Update the policies of due jobs; return the jobs' ids."""
        async with self.engine.connect() as conn:
            due = await rows.due(conn, self.now() + self.lifetime / 2, PAGE_SIZE)
        for start in range(0, len(due), CONCURRENCY):
            await asyncio.gather(
                *(self._update_job(job) for job in due[start : start + CONCURRENCY])
            )
        return due

    async def _update_job(self, job_id: str) -> None:
        try:
            await access_policies.update_policies(
                self.engine, self.store, job_id, self.lifetime, self.now()
            )
        except StorageError as fault:
            log.warning("access.not_settled", extra={"job": job_id, "cause": str(fault)})
