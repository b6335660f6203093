"""The seam to what Azure tells of its Spot market, with credentials."""

from collections.abc import Collection
from typing import Protocol

from service.domain.spot.capacity_traces import SpotPool
from service.domain.spot.market import EvictionBand, PlacementScore, PricePoint

MACHINES_AT_MOST = 1000  # that Azure scores together


class MarketUnavailable(Exception):
    """Azure does not tell it now. Safe to ask again, after ``retry_after`` seconds at least."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Market(Protocol):
    """What is known of places; those that Azure says nothing of are left out."""

    async def bands(self, places: Collection[SpotPool]) -> dict[SpotPool, EvictionBand]:
        """How often machines were evicted lately. Raises MarketUnavailable."""
        ...

    async def price_history(self, places: Collection[SpotPool]) -> dict[SpotPool, list[PricePoint]]:
        """Spot prices of the last months, oldest first. Raises MarketUnavailable."""
        ...

    async def scores(
        self, places: Collection[SpotPool], machines: int
    ) -> dict[SpotPool, PlacementScore]:
        """Whether so many Spot machines (MACHINES_AT_MOST) would be given together.

        Raises MarketUnavailable.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
