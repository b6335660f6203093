"""The seam to remembered prices: the last good ones, and doubted jumps; with one in memory.

All replicas should share one memory, so that all use the same price.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Protocol

from service.domain.money.price_check import PriceDoubt
from service.domain.spot.capacity_traces import SpotPool
from service.domain.states import CapacityType


class PriceMemory(Protocol):
    """Memory of prices that survives restarts."""

    async def last_good_prices(self, pool: SpotPool) -> dict[CapacityType, Decimal]:
        """Return the last good prices of a pool by capacity type."""
        ...

    async def find_doubts(self, meters: Collection[str]) -> dict[str, PriceDoubt]:
        """Return the doubts about these meters, settled ones included."""
        ...

    async def save_doubt(self, meter: str, doubt: PriceDoubt) -> None:
        """Store a doubt in place of an earlier one of the meter."""
        ...

    async def remove_doubt(self, meter: str) -> None:
        """Drop the meter's doubt."""
        ...


@dataclass
class ProcessMemory:
    """Memory of prices that ends with the process."""

    prices: dict[SpotPool, dict[CapacityType, Decimal]] = field(default_factory=dict)
    doubts: dict[str, PriceDoubt] = field(default_factory=dict)

    async def last_good_prices(self, pool: SpotPool) -> dict[CapacityType, Decimal]:
        return dict(self.prices.get(pool, {}))

    async def find_doubts(self, meters: Collection[str]) -> dict[str, PriceDoubt]:
        return {meter: self.doubts[meter] for meter in meters if meter in self.doubts}

    async def save_doubt(self, meter: str, doubt: PriceDoubt) -> None:
        self.doubts[meter] = doubt

    async def remove_doubt(self, meter: str) -> None:
        self.doubts.pop(meter, None)
