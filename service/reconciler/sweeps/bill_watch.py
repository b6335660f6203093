"""Fetch Azure's bills of the last days every few hours, by one replica for all."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.money import bills as rows
from service.pricing.bills import Bills
from service.reconciler.sweeps.market_watch import fetch_if_due

_INTERVAL = timedelta(hours=8)
_CORRECTION_PERIOD = timedelta(days=10)  # Azure still corrects the bills of these days
_LONGEST_RECONCILIATION = timedelta(days=90)


@dataclass(frozen=True, kw_only=True)
class BillWatch:
    """Fetches bills when they are due; has no state."""

    engine: AsyncEngine
    bills: Bills
    now: Callable[[], datetime]

    async def run_once(self) -> None:
        """Fetch the bills if that is due."""
        await fetch_if_due(self.engine, self.now, rows.READ_NAME, _INTERVAL, self._fetch_bills)

    async def _fetch_bills(self) -> None:
        until = self.now().astimezone(UTC).date()
        async with self.engine.connect() as conn:
            since = _first_day(until, (await rows.read_state(conn)).told_at)
        bills = await self.bills.billed(since, until)
        async with self.engine.begin() as conn:
            await rows.save(conn, bills, since, until, self.now())


def _first_day(today: date, told_at: datetime | None) -> date:
    """Return the first day to fetch, so that no day since the last fetch is left out."""
    first = (
        today - _LONGEST_RECONCILIATION
        if told_at is None
        else told_at.astimezone(UTC).date() - _CORRECTION_PERIOD
    )
    return max(first, today - _LONGEST_RECONCILIATION)
