"""Cache the capacity history for some seconds.

Thousands of jobs that are evicted together choose between the same offerings.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.attempts import machine_history
from service.domain.cloud.fleet import Offering
from service.domain.placement.capacity_history import CapacityHistory

_LIFETIME = timedelta(seconds=10)  # current shortages are read separately

Choice = tuple[frozenset[Offering], int]


@dataclass(frozen=True, kw_only=True)
class CapacityHistoryCache:
    """Caches the capacity histories of one process."""

    reads: dict[Choice, tuple[datetime, asyncio.Task[CapacityHistory]]] = field(
        default_factory=dict
    )

    async def read(
        self, conn: AsyncConnection, offerings: Collection[Offering], nodes: int, now: datetime
    ) -> CapacityHistory:
        """Return the capacity history for a choice between offerings for ``nodes`` nodes.

        Concurrent callers share one read.
        """
        choice = (frozenset(offerings), nodes)
        while (read := self._find_read(choice, now)) is not None:
            try:
                return await asyncio.shield(read)
            except asyncio.CancelledError:
                if not read.cancelled():  # this caller was cancelled, not the read
                    raise
        reading = asyncio.create_task(machine_history.capacity_history(conn, offerings, nodes, now))
        self.reads[choice] = (now, reading)
        try:
            return await reading
        except BaseException:
            self.reads.pop(choice, None)
            raise

    def _find_read(self, choice: Choice, now: datetime) -> asyncio.Task[CapacityHistory] | None:
        """Return the read that is fresh or in progress; None without one."""
        for old in [c for c, (at, _) in self.reads.items() if now - at > _LIFETIME]:
            del self.reads[old]
        _, read = self.reads.get(choice, (None, None))
        return None if read is None or read.cancelled() else read
