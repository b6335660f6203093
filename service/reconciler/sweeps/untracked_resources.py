"""Tells operators of what carries our tag and is no scale set. Nothing of it is deleted.

One wrong tag would cost somebody a disk: a person looks at it (docs/runbook.md).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncEngine

from service.cloud.provider import ATTEMPT_TAG, JOB_TAG, CloudError, CloudProvider
from service.db.cloud import alarms
from service.domain.cloud.fleet import TaggedResource

log = logging.getLogger(__name__)
ALARM = "leak.stray"
GRACE = timedelta(minutes=10)  # what goes with its scale set is gone by then
AGAIN = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class UntrackedResourceSweep:
    """Looks at what Azure lists under our tag beside scale sets."""

    engine: AsyncEngine
    cloud: CloudProvider
    now: Callable[[], datetime]

    async def run_once(self) -> list[str]:
        """Tell of what has been there for a while, again each day; return the names."""
        try:
            found = {f"{one.kind}/{one.name}": one for one in await self.cloud.list_tagged()}
        except CloudError as fault:
            log.warning("sweep.list_failed", extra={"cause": str(fault)})
            return []
        now = self.now()
        async with self.engine.begin() as conn:
            since = await alarms.record(conn, ALARM, found, now)
            old = [name for name in found if now - since[name] >= GRACE]
            late = await alarms.claim(conn, ALARM, old, now, AGAIN)
            for name in late:  # before the commit: an alarm may be repeated, and is never lost
                _tell(name, found[name])
        return late


def _tell(name: str, stray: TaggedResource) -> None:
    tags = {"attempt": stray.tags.get(ATTEMPT_TAG, ""), "job": stray.tags.get(JOB_TAG, "")}
    log.error(ALARM, extra={"resource": name, "region": stray.region, **tags})
