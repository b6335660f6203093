"""Keeps what Azure tells of its Spot market: one replica asks, all read what was written."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.spot import capacity_observations
from service.db.spot import market as rows
from service.domain.spot.capacity_traces import SpotPool
from service.pricing.market import MACHINES_AT_MOST, Market, MarketUnavailable

log = logging.getLogger(__name__)
GRAPH = "graph"  # eviction bands and price history
_GRAPH_EVERY = timedelta(hours=12)  # Azure counts over 28 days
SCORES = "scores"
_SCORES_EVERY = timedelta(minutes=20)  # Azure wants no more than one question in 15 to 30
_AFTER_FAULT = timedelta(minutes=15)


@dataclass(frozen=True, kw_only=True)
class MarketWatch:
    """Holds nothing."""

    engine: AsyncEngine
    market: Market
    places: tuple[SpotPool, ...]  # where Spot may be bought
    now: Callable[[], datetime]

    async def run_once(self) -> None:
        """Ask whatever is due."""
        if self.places:
            await look(self.engine, self.now, GRAPH, _GRAPH_EVERY, self._graph)
            await look(self.engine, self.now, SCORES, _SCORES_EVERY, self._scores)

    async def _graph(self) -> None:
        """Save eviction bands, then prices: a failure of the second request loses no bands."""
        bands = await self.market.bands(self.places)
        async with self.engine.begin() as conn:
            await rows.save_bands(conn, bands, self.now())
        prices = await self.market.price_history(self.places)
        async with self.engine.begin() as conn:
            await rows.save_prices(conn, prices, self.now())

    async def _scores(self) -> None:
        """For as many machines as any job asked for together lately."""
        async with self.engine.connect() as conn:
            machines = min(await capacity_observations.largest_gang(conn), MACHINES_AT_MOST)
        scores = await self.market.scores(self.places, machines)
        async with self.engine.begin() as conn:
            await rows.save_scores(conn, scores, machines, self.now())


async def look(
    engine: AsyncEngine,
    now: Callable[[], datetime],
    what: str,
    every: timedelta,
    ask: Callable[[], Awaitable[None]],
) -> None:
    """Ask if it is due, one replica for all; after a failure later, and what was told holds."""
    began = now()
    async with engine.begin() as conn:
        if not await rows.claim(conn, what, began, began + _AFTER_FAULT):
            return
    try:
        await ask()
    except MarketUnavailable as fault:
        log.warning("market.not_told", extra={"what": what, "cause": str(fault)})
        wait = max(_AFTER_FAULT, timedelta(seconds=fault.retry_after))
        await _failed(engine, what, str(fault), now(), wait)
        return
    except Exception as fault:
        await _failed(engine, what, f"{type(fault).__name__}, see the log", now(), _AFTER_FAULT)
        raise
    async with engine.begin() as conn:
        await rows.record_success(conn, what, began, began + every)


async def _failed(
    engine: AsyncEngine, what: str, trouble: str, now: datetime, wait: timedelta
) -> None:
    async with engine.begin() as conn:
        await rows.record_failure(conn, what, trouble, now, now + wait)
