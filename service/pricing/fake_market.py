"""A Spot market in memory: for tests, and for a service without a cloud."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from service.domain.spot.capacity_traces import SpotPool
from service.domain.spot.market import EvictionBand, PlacementScore, PricePoint
from service.pricing.market import MarketUnavailable


@dataclass
class FakeMarket:
    """A fake that returns the values of its attributes."""

    listed_bands: Mapping[SpotPool, EvictionBand] = field(default_factory=dict)
    listed_prices: Mapping[SpotPool, list[PricePoint]] = field(default_factory=dict)
    listed_scores: Mapping[SpotPool, PlacementScore] = field(default_factory=dict)
    requested_machines: int = 0  # machines in the last request for scores
    fail_next: list[MarketUnavailable] = field(default_factory=list)  # raised by the next calls
    calls: int = 0

    async def bands(self, pools: Collection[SpotPool]) -> dict[SpotPool, EvictionBand]:
        self._admit()
        return {p: self.listed_bands[p] for p in pools if p in self.listed_bands}

    async def price_history(self, pools: Collection[SpotPool]) -> dict[SpotPool, list[PricePoint]]:
        self._admit()
        return {p: sorted(self.listed_prices[p]) for p in pools if p in self.listed_prices}

    async def scores(
        self, pools: Collection[SpotPool], machines: int
    ) -> dict[SpotPool, PlacementScore]:
        """Return the listed scores; keep ``machines`` for tests in ``requested_machines``."""
        self._admit()
        self.requested_machines = machines
        return {p: self.listed_scores[p] for p in pools if p in self.listed_scores}

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    def _admit(self) -> None:
        self.calls += 1
        if self.fail_next:
            raise self.fail_next.pop(0)
