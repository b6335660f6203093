"""Prices in PostgreSQL: the memory behind the price list."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.money import price_doubts
from service.domain.money.price_check import PriceDoubt
from service.domain.spot.capacity_traces import SpotPool
from service.domain.states import CapacityType


@dataclass(frozen=True, kw_only=True)
class DatabaseMemory:
    """Keeps prices and doubts in the database, for restarts and all replicas."""

    engine: AsyncEngine
    now: Callable[[], datetime]

    async def last_good_prices(self, pool: SpotPool) -> dict[CapacityType, Decimal]:
        """Return the last good prices of a pool, as far as any are known."""
        async with self.engine.connect() as conn:
            return await price_doubts.last_good_prices(conn, pool, self.now())

    async def find_doubts(self, meters: Collection[str]) -> dict[str, PriceDoubt]:
        """Return the price jumps of these meters, settled ones included."""
        async with self.engine.connect() as conn:
            return await price_doubts.doubts_about(conn, meters)

    async def save_doubt(self, meter: str, doubt: PriceDoubt) -> None:
        """Store a doubt in place of an earlier one of the meter."""
        async with self.engine.begin() as conn:
            await price_doubts.save(conn, meter, doubt, self.now())

    async def remove_doubt(self, meter: str) -> None:
        """Drop the meter's doubt."""
        async with self.engine.begin() as conn:
            await price_doubts.remove(conn, meter)
