"""Gives attempts access to their job's container before their machines boot, and revokes it.

Level-triggered: it compares the rows of attempts with what they say of their policies.
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
PAGE = 500  # jobs of one round
AT_ONCE = 16


@dataclass(frozen=True, kw_only=True)
class AccessPolicies:
    """Holds nothing; killed anywhere, it begins again."""

    engine: AsyncEngine
    store: BlobStore
    life: timedelta  # of a policy; renewed at half of it
    now: Callable[[], datetime]

    async def run_once(self) -> list[str]:
        """Settle what is due; return the jobs."""
        async with self.engine.connect() as conn:
            due = await rows.due(conn, self.now() + self.life / 2, PAGE)
        for start in range(0, len(due), AT_ONCE):
            await asyncio.gather(*(self._settle(job) for job in due[start : start + AT_ONCE]))
        return due

    async def _settle(self, job_id: str) -> None:
        try:
            await access_policies.update_policies(
                self.engine, self.store, job_id, self.life, self.now()
            )
        except StorageError as fault:
            log.warning("access.not_settled", extra={"job": job_id, "cause": str(fault)})
