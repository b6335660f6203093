"""The seam to what Azure has billed, and one in memory."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import date
from typing import Protocol

from service.domain.money.billing_reconciliation import BilledDay
from service.pricing.market import MarketUnavailable

_A_DAY = 86_400.0


class Bills(Protocol):
    """What the scale sets of this deployment were billed."""

    async def billed(self, since: date, until: date) -> list[BilledDay]:
        """By day, attempt and kind of meter, both days included. Raises MarketUnavailable.

        What lies beside the scale sets and carries no tag of any deployment is UNTAGGED.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


@dataclass
class FakeBills:
    """Says what it is told to; knobs are plain attributes."""

    rows: Collection[BilledDay] | None = ()  # None: there is no bill to tell
    fail_next: list[MarketUnavailable] = field(default_factory=list)  # raised by the next calls
    asked: list[tuple[date, date]] = field(default_factory=list)

    async def billed(self, since: date, until: date) -> list[BilledDay]:
        self.asked.append((since, until))
        if self.fail_next:
            raise self.fail_next.pop(0)
        if self.rows is None:
            raise MarketUnavailable("REKINDLE_CLOUD is fake, so nobody bills.", _A_DAY)
        return [row for row in self.rows if since <= row.day <= until]

    async def close(self) -> None:
        """Nothing to let go of."""
