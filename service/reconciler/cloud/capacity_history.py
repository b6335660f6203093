"""What requests for Spot were answered, remembered for some seconds.

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

_FRESH = timedelta(seconds=10)  # what is sold out just now is told by shortages

Choice = tuple[frozenset[Offering], int]


@dataclass(frozen=True, kw_only=True)
class CapacityHistoryCache:
    """Of one process; read again once it is older than that."""

    known: dict[Choice, tuple[datetime, asyncio.Task[CapacityHistory]]] = field(
        default_factory=dict
    )

    async def of(
        self, conn: AsyncConnection, offerings: Collection[Offering], nodes: int, now: datetime
    ) -> CapacityHistory:
        """Return the capacity history for a choice between offerings for ``nodes`` nodes.

        Concurrent callers share one read.
        """
        choice = (frozenset(offerings), nodes)
        while (told := self._told(choice, now)) is not None:
            try:
                return await asyncio.shield(told)
            except asyncio.CancelledError:
                if not told.cancelled():  # it is we who end, not the one who read
                    raise
        reading = asyncio.create_task(machine_history.capacity_history(conn, offerings, nodes, now))
        self.known[choice] = (now, reading)
        try:
            return await reading
        except BaseException:
            self.known.pop(choice, None)
            raise

    def _told(self, choice: Choice, now: datetime) -> asyncio.Task[CapacityHistory] | None:
        """Return the read that is fresh or in progress; None without one."""
        for old in [c for c, (at, _) in self.known.items() if now - at > _FRESH]:
            del self.known[old]
        _, told = self.known.get(choice, (None, None))
        return None if told is None or told.cancelled() else told
