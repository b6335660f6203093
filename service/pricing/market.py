"""The seam to Azure's data about its Spot market, which needs credentials."""

from collections.abc import Collection
from typing import Protocol

from service.domain.spot.capacity_traces import SpotPool
from service.domain.spot.market import EvictionBand, PlacementScore, PricePoint

MAX_MACHINES = 1000  # most that Azure scores together


class MarketUnavailable(Exception):
    """Azure does not answer now. Retry after ``retry_after`` seconds at the earliest."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Market(Protocol):
    """Data about pools of the Spot market; pools without data are left out."""

    async def bands(self, pools: Collection[SpotPool]) -> dict[SpotPool, EvictionBand]:
        """Return how often machines were evicted lately. Raises MarketUnavailable."""
        ...

    async def price_history(self, pools: Collection[SpotPool]) -> dict[SpotPool, list[PricePoint]]:
        """Return Spot prices of the last months, oldest first. Raises MarketUnavailable."""
        ...

    async def scores(
        self, pools: Collection[SpotPool], machines: int
    ) -> dict[SpotPool, PlacementScore]:
        """Return how likely a request for ``machines`` (up to MAX_MACHINES) Spot machines succeeds.

        Raises MarketUnavailable.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...
