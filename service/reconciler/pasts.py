"""What requests for Spot were answered, remembered for some seconds.

Thousands of jobs that are evicted together choose between the same offerings.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db import experience
from service.domain.answers import Past
from service.domain.fleet import Offering

_FRESH = timedelta(seconds=10)  # what is sold out just now is told by shortages

Choice = tuple[frozenset[Offering], int]


@dataclass(frozen=True, kw_only=True)
class Pasts:
    """Of one process; read again once it is older than that."""

    known: dict[Choice, tuple[datetime, Past]] = field(default_factory=dict)

    async def of(
        self, conn: AsyncConnection, offerings: Collection[Offering], nodes: int, now: datetime
    ) -> Past:
        """What a choice between these offerings for so many nodes knows."""
        choice = (frozenset(offerings), nodes)
        read_at, past = self.known.get(choice, (None, None))
        if read_at is None or past is None or now - read_at > _FRESH:
            past = await experience.past(conn, offerings, nodes, now)
            for old in [c for c, (at, _) in self.known.items() if now - at > _FRESH]:
                del self.known[old]
            self.known[choice] = (now, past)
        return past
