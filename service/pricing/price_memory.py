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

    async def paid(self, pool: SpotPool) -> dict[CapacityType, Decimal]:
        """Return the last good prices of a pool by capacity type."""
        ...

    async def doubts(self, meters: Collection[str]) -> dict[str, PriceDoubt]:
        """Return the doubts about these meters, settled ones included."""
        ...

    async def doubt(self, meter: str, doubt: PriceDoubt) -> None:
        """Store a doubt in place of an earlier one of the meter."""
        ...

    async def forget(self, meter: str) -> None:
        """Drop the meter's doubt."""
        ...


@dataclass
class ProcessMemory:
    """Memory of prices that ends with the process."""

    prices: dict[SpotPool, dict[CapacityType, Decimal]] = field(default_factory=dict)
    doubted: dict[str, PriceDoubt] = field(default_factory=dict)

    async def paid(self, pool: SpotPool) -> dict[CapacityType, Decimal]:
        return dict(self.prices.get(pool, {}))

    async def doubts(self, meters: Collection[str]) -> dict[str, PriceDoubt]:
        return {meter: self.doubted[meter] for meter in meters if meter in self.doubted}

    async def doubt(self, meter: str, doubt: PriceDoubt) -> None:
        self.doubted[meter] = doubt

    async def forget(self, meter: str) -> None:
        self.doubted.pop(meter, None)
