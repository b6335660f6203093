"""Report untracked resources to operators: those with our tag that are no scale sets.

None is deleted, because one wrong tag would cost a disk: a person decides (docs/runbook.md).
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
ALARM = "leak.untracked"
GRACE = timedelta(minutes=10)  # what is deleted with its scale set is gone by then
REPEAT_INTERVAL = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class UntrackedResourceSweep:
    """Raises an alarm for each untracked resource."""

    engine: AsyncEngine
    cloud: CloudProvider
    now: Callable[[], datetime]

    async def run_once(self) -> list[str]:
        """Log resources that have existed for GRACE, again each day; return their names."""
        try:
            resources = {
                f"{resource.kind}/{resource.name}": resource
                for resource in await self.cloud.list_tagged()
            }
        except CloudError as fault:
            log.warning("sweep.list_failed", extra={"cause": str(fault)})
            return []
        now = self.now()
        async with self.engine.begin() as conn:
            since = await alarms.record(conn, ALARM, resources, now)
            old = [name for name in resources if now - since[name] >= GRACE]
            late = await alarms.claim(conn, ALARM, old, now, REPEAT_INTERVAL)
            for name in late:  # before the commit: an alarm may be repeated, and is never lost
                _log_alarm(name, resources[name])
        return late


def _log_alarm(name: str, resource: TaggedResource) -> None:
    tags = {"attempt": resource.tags.get(ATTEMPT_TAG, ""), "job": resource.tags.get(JOB_TAG, "")}
    log.error(ALARM, extra={"resource": name, "region": resource.region, **tags})
