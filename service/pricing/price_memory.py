"""What is known of prices beyond the list: the last good ones, and jumps that are doubted.

The seam to it, and one in memory. All replicas should share one, so that each uses one price.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Protocol

from service.domain.money.price_check import PriceDoubt
from service.domain.spot.capacity_traces import SpotPool
from service.domain.states import CapacityType


class PriceMemory(Protocol):
    """Remembers over restarts."""

    async def paid(self, place: SpotPool) -> dict[CapacityType, Decimal]:
        """Return the last good prices of a place by capacity type."""
        ...

    async def doubts(self, meters: Collection[str]) -> dict[str, PriceDoubt]:
        """Jumps of these meters, settled ones included."""
        ...

    async def doubt(self, meter: str, doubt: PriceDoubt) -> None:
        """Keep a doubt in place of an earlier one of the meter."""
        ...

    async def forget(self, meter: str) -> None:
        """Drop the meter's doubt."""
        ...


@dataclass
class ProcessMemory:
    """Remembers as long as the process lives; knobs are plain attributes."""

    prices: dict[SpotPool, dict[CapacityType, Decimal]] = field(default_factory=dict)
    doubted: dict[str, PriceDoubt] = field(default_factory=dict)

    async def paid(self, place: SpotPool) -> dict[CapacityType, Decimal]:
        return dict(self.prices.get(place, {}))

    async def doubts(self, meters: Collection[str]) -> dict[str, PriceDoubt]:
        return {meter: self.doubted[meter] for meter in meters if meter in self.doubted}

    async def doubt(self, meter: str, doubt: PriceDoubt) -> None:
        self.doubted[meter] = doubt

    async def forget(self, meter: str) -> None:
        self.doubted.pop(meter, None)
