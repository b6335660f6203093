"""Store Azure's data on its Spot market: one replica fetches them for all."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.spot import capacity_observations
from service.db.spot import market as rows
from service.domain.spot.capacity_traces import SpotPool
from service.pricing.market import MAX_MACHINES, Market, MarketUnavailable

log = logging.getLogger(__name__)
GRAPH = "graph"  # eviction bands and price history
_GRAPH_INTERVAL = timedelta(hours=12)  # Azure counts over 28 days
SCORES = "scores"
_SCORES_INTERVAL = timedelta(minutes=20)  # Azure allows one request in 15 to 30 minutes
_AFTER_FAULT = timedelta(minutes=15)


@dataclass(frozen=True, kw_only=True)
class MarketWatch:
    """Fetches eviction bands, prices and placement scores when due; has no state."""

    engine: AsyncEngine
    market: Market
    pools: tuple[SpotPool, ...]  # where Spot may be bought
    now: Callable[[], datetime]

    async def run_once(self) -> None:
        """Fetch what is due."""
        if self.pools:
            await fetch_if_due(
                self.engine, self.now, GRAPH, _GRAPH_INTERVAL, self._fetch_bands_and_prices
            )
            await fetch_if_due(self.engine, self.now, SCORES, _SCORES_INTERVAL, self._fetch_scores)

    async def _fetch_bands_and_prices(self) -> None:
        """Save eviction bands, then prices: a failure of the second request loses no bands."""
        bands = await self.market.bands(self.pools)
        async with self.engine.begin() as conn:
            await rows.save_bands(conn, bands, self.now())
        prices = await self.market.price_history(self.pools)
        async with self.engine.begin() as conn:
            await rows.save_prices(conn, prices, self.now())

    async def _fetch_scores(self) -> None:
        """Fetch placement scores for the largest gang that a job requested lately."""
        async with self.engine.connect() as conn:
            machines = min(await capacity_observations.largest_gang(conn), MAX_MACHINES)
        scores = await self.market.scores(self.pools, machines)
        async with self.engine.begin() as conn:
            await rows.save_scores(conn, scores, machines, self.now())


async def fetch_if_due(
    engine: AsyncEngine,
    now: Callable[[], datetime],
    source: str,
    interval: timedelta,
    fetch: Callable[[], Awaitable[None]],
) -> None:
    """Fetch if it is due, by one replica for all; after a failure keep old data and retry later."""
    start = now()
    async with engine.begin() as conn:
        if not await rows.claim(conn, source, start, start + _AFTER_FAULT):
            return
    try:
        await fetch()
    except MarketUnavailable as fault:
        log.warning("market.not_told", extra={"what": source, "cause": str(fault)})
        wait = max(_AFTER_FAULT, timedelta(seconds=fault.retry_after))
        await _record_failure(engine, source, str(fault), now(), wait)
        return
    except Exception as fault:
        await _record_failure(
            engine, source, f"{type(fault).__name__}, see the log", now(), _AFTER_FAULT
        )
        raise
    async with engine.begin() as conn:
        await rows.record_success(conn, source, start, start + interval)


async def _record_failure(
    engine: AsyncEngine, source: str, error: str, now: datetime, wait: timedelta
) -> None:
    async with engine.begin() as conn:
        await rows.record_failure(conn, source, error, now, now + wait)
