"""Bill running machines at the current price: Spot prices move while machines are held."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.attempts import attempts
from service.db.money import ledger
from service.domain.cloud.fleet import Offering, Price
from service.pricing.source import PriceSource, PricesUnavailable

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PriceWatch:
    """Compares the price of each held offering with the listed one; has no state."""

    engine: AsyncEngine
    prices: PriceSource
    now: Callable[[], datetime]

    async def run_once(self) -> int:
        """Read the price of each held offering; return how many attempts were repriced.

        An offering whose price cannot be read keeps its last one; the others are still repriced.
        """
        async with self.engine.connect() as conn:
            offerings = await attempts.held_offerings(conn)
        changed = 0
        for offering in offerings:
            try:
                quoted = await self.prices.prices([offering])
            except PricesUnavailable as fault:
                log.warning("prices.not_read", extra={"cause": str(fault)})
                continue
            if price := quoted.get(offering):
                changed += await self._reprice(offering, price)
        return changed

    async def _reprice(self, offering: Offering, price: Price) -> int:
        async with self.engine.begin() as conn:
            attempt_ids = await attempts.reprice(conn, offering, price)
            for attempt_id in attempt_ids:
                await ledger.reprice(conn, attempt_id, price, self.now())
        return len(attempt_ids)
