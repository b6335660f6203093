"""Open and close the service's adapters: database, cloud, blobs, prices, and the clock."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncEngine

from service import azure_access
from service.cloud.azureml.model_registry import ModelRegistry
from service.cloud.provider import CloudProvider
from service.db.core.engine import driver_url, make_engine
from service.db.core.notify import Listener
from service.operations.money.price_memory import DatabaseMemory
from service.preflight.checker import RowChecker
from service.preflight.process import ProcessChecker
from service.pricing.azure.retail import RetailPrices
from service.pricing.bills import Bills, FakeBills
from service.pricing.fake_market import FakeMarket
from service.pricing.market import Market
from service.pricing.source import PriceSource
from service.settings import Settings
from service.storage.store import BlobStore
from service.trackers.tracker import Tracker

Clock = Callable[[], datetime]


@dataclass(frozen=True, kw_only=True)
class Adapters:
    """Adapters to external services, as the settings choose them."""

    now: Clock
    engine: AsyncEngine
    cloud: CloudProvider
    store: BlobStore
    regional: Mapping[str, BlobStore]  # region -> the account there
    prices: PriceSource
    listener: Listener
    market: Market
    bills: Bills
    checker: RowChecker
    registry: ModelRegistry | None  # None: this deployment has none
    trackers: Mapping[str, Tracker]  # by type


@asynccontextmanager
async def adapters(settings: Settings, now: Clock) -> AsyncIterator[Adapters]:
    """Open all adapters, and close them again."""
    cloud = azure_access.cloud(settings, now)
    store = azure_access.blobs(settings, settings.storage.get_secret_value(), now)
    regional = {
        region: azure_access.blobs(settings, account.get_secret_value(), now)
        for region, account in settings.region_storage.items()
    }
    engine = make_engine(settings.database_url.get_secret_value())
    prices = RetailPrices(
        base_url=settings.prices_url,
        ca_path=azure_access.ca(settings),
        now=now,
        memory=DatabaseMemory(engine=engine, now=now),
    )
    market_and_bills = azure_access.market(settings), azure_access.bills(settings)
    async with join_adapters(
        settings, now, cloud, store, regional, prices, market_and_bills, engine
    ) as opened:
        yield opened


@asynccontextmanager
async def join_adapters(
    settings: Settings,
    now: Clock,
    cloud: CloudProvider,
    store: BlobStore,
    regional: Mapping[str, BlobStore],
    prices: PriceSource,
    market_and_bills: tuple[Market, Bills] | None = None,  # None: an empty market and no bills
    engine: AsyncEngine | None = None,  # None: a new one
) -> AsyncIterator[Adapters]:
    """Open the database and join it with these adapters; close all of them at the end."""
    url = settings.database_url.get_secret_value()
    market, bills = market_and_bills or (FakeMarket(), FakeBills())
    parts = Adapters(
        now=now,
        engine=engine or make_engine(url),
        cloud=cloud,
        store=store,
        regional=regional,
        prices=prices,
        listener=Listener(driver_url(url)),
        market=market,
        bills=bills,
        checker=ProcessChecker(),
        registry=azure_access.models(settings),
        trackers=azure_access.trackers(settings, store),
    )
    listening = asyncio.create_task(parts.listener.run())
    try:
        yield parts
    finally:
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listening
        for account in parts.regional.values():
            await account.close()
        for part in (parts.cloud, parts.store, parts.prices, parts.market, parts.bills):
            await part.close()
        for tracker in parts.trackers.values():
            await tracker.close()
        if parts.registry:
            await parts.registry.close()
        await parts.engine.dispose()


OpenAdapters = Callable[[Settings, Clock], AbstractAsyncContextManager[Adapters]]
