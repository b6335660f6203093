"""The seam to Azure's bills, with a fake."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import date
from typing import Protocol

from service.domain.money.billing_reconciliation import BilledDay
from service.pricing.market import MarketUnavailable

_DAY_SECONDS = 86_400.0


class Bills(Protocol):
    """Bills of this deployment's scale sets."""

    async def billed(self, since: date, until: date) -> list[BilledDay]:
        """Return bills by day, attempt and meter category, both days included.

        Resources beside the scale sets without a tag of any deployment are UNTAGGED. Raises
        MarketUnavailable.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


@dataclass
class FakeBills:
    """A fake that returns ``rows``."""

    rows: Collection[BilledDay] | None = ()  # None: there is no bill
    fail_next: list[MarketUnavailable] = field(default_factory=list)  # raised by the next calls
    requested_periods: list[tuple[date, date]] = field(default_factory=list)

    async def billed(self, since: date, until: date) -> list[BilledDay]:
        self.requested_periods.append((since, until))
        if self.fail_next:
            raise self.fail_next.pop(0)
        if self.rows is None:
            raise MarketUnavailable("REKINDLE_CLOUD is fake: there is no bill.", _DAY_SECONDS)
        return [row for row in self.rows if since <= row.day <= until]

    async def close(self) -> None:
        """Do nothing: there are no connections."""
