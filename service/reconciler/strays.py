"""Tells operators of what carries our tag and is no scale set. Nothing of it is deleted.

One wrong tag would cost somebody a disk: a person looks at it (docs/runbook.md).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from service.cloud.provider import ATTEMPT_TAG, JOB_TAG, CloudError, CloudProvider
from service.domain.fleet import Resource

log = logging.getLogger(__name__)
ALARM = "leak.stray"
AGAIN = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class StrayWatch:
    """Looks at what Azure lists under our tag beside scale sets."""

    cloud: CloudProvider
    now: Callable[[], datetime]
    _told: dict[str, datetime | None] = field(default_factory=dict)  # None: seen once, not told

    async def run_once(self) -> list[str]:
        """Names of those that were told now: of what two looks have shown, and again each day."""
        try:
            found = {f"{one.kind}/{one.name}": one for one in await self.cloud.list_tagged()}
        except CloudError as fault:
            log.warning("sweep.list_failed", extra={"cause": str(fault)})
            return []
        for gone in self._told.keys() - found.keys():
            del self._told[gone]
        late = [name for name in found if self._is_due(name)]
        for name in late:
            self._tell(name, found[name])
        return late

    def _is_due(self, name: str) -> bool:
        if name not in self._told:  # what goes with its scale set is gone at the next look
            self._told[name] = None
            return False
        last = self._told[name]
        return last is None or self.now() - last >= AGAIN

    def _tell(self, name: str, stray: Resource) -> None:
        self._told[name] = self.now()
        tags = {"attempt": stray.tags.get(ATTEMPT_TAG, ""), "job": stray.tags.get(JOB_TAG, "")}
        log.error(ALARM, extra={"resource": name, "region": stray.region, **tags})
