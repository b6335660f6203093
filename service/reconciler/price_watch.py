"""Has what runs billed at the price of now: Spot prices move while machines are held."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db import attempts, ledger
from service.pricing.source import PriceSource, PricesUnavailable

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PriceWatch:
    """Holds nothing."""

    engine: AsyncEngine
    prices: PriceSource
    now: Callable[[], datetime]

    async def run_once(self) -> int:
        """Ask once for all offerings that are held; return how many attempts cost something else.

        Without an answer everything goes on at the price that is known.
        """
        async with self.engine.connect() as conn:
            held = await attempts.held_offerings(conn)
        if not held:
            return 0
        try:
            quoted = await self.prices.prices(held)
        except PricesUnavailable as fault:
            log.warning("prices.not_read", extra={"cause": str(fault)})
            return 0
        changed = 0
        for offering, price in quoted.items():
            async with self.engine.begin() as conn:
                dearer = await attempts.reprice(conn, offering, price)
                for attempt_id in dearer:
                    await ledger.reprice(conn, attempt_id, price, self.now())
            changed += len(dearer)
        return changed
