"""Fetches what Azure has billed of the last days, once in a while, by one replica."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.money import bills as rows
from service.pricing.bills import Bills
from service.reconciler.sweeps.market_watch import look

_EVERY = timedelta(hours=8)
_BACK = timedelta(days=10)  # Azure goes on correcting days that are over
_SHOWN = timedelta(days=90)  # by a reconciliation, at most


@dataclass(frozen=True, kw_only=True)
class BillWatch:
    """Holds nothing."""

    engine: AsyncEngine
    bills: Bills
    now: Callable[[], datetime]

    async def run_once(self) -> None:
        """Ask if it is time to."""
        await look(self.engine, self.now, rows.LOOK, _EVERY, self._fetch)

    async def _fetch(self) -> None:
        until = self.now().astimezone(UTC).date()
        async with self.engine.connect() as conn:
            since = _since(until, (await rows.last_look(conn)).told_at)
        found = await self.bills.billed(since, until)
        async with self.engine.begin() as conn:
            await rows.save(conn, found, since, until, self.now())


def _since(today: date, told_at: datetime | None) -> date:
    """No day is left out between two looks, however long nobody looked."""
    last = today - _SHOWN if told_at is None else told_at.astimezone(UTC).date() - _BACK
    return max(last, today - _SHOWN)
