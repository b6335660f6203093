"""Azure's public price list (Retail Prices API); it needs no credentials."""

import json
import ssl
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import httpx

from service.domain.cloud.fleet import Offering, Price
from service.domain.money.storage_cost import StoragePrices
from service.domain.performance.vm_catalogue import lookup
from service.domain.spot.capacity_traces import SpotPool, spot_pool_of
from service.domain.states import CapacityType
from service.domain.storage.access_tiers import StorageAccount
from service.pricing import machine_prices, storage_prices
from service.pricing.price_guard import PriceGuard
from service.pricing.price_memory import PriceMemory, ProcessMemory
from service.pricing.price_rows import Row
from service.pricing.remembered import PriceListCache
from service.pricing.source import PricesUnavailable

API_VERSION = "2023-01-01-preview"
REQUEST_SECONDS = 20.0
MAX_PAGES = 50  # for one size in one region; the real list has one
MACHINE_SECONDS = 300.0  # longest use of a listed machine price
STORAGE_SECONDS = 600.0  # the same for storage, whose prices change a few times a year


@dataclass(frozen=True)
class Quotes:
    """Prices of a pool; ``unreadable``: one of its rows that could not be read, or ""."""

    prices: dict[CapacityType, Price]
    unreadable: str


class RetailPrices:
    """Recently listed prices of Linux machines per hour and of Blob Storage, in US dollars.

    Only rows in force at ``now`` count. The last good price replaces a price that jumps or cannot
    be read; ``memory`` keeps it over restarts.
    """

    def __init__(
        self,
        *,
        base_url: str = "https://prices.azure.com",
        ca_path: str = "",
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] | None = None,  # None: this machine's clock
        memory: PriceMemory | None = None,  # None: in this process only
    ) -> None:
        self._now = now or _wall_clock
        self._guard = PriceGuard(memory or ProcessMemory(), self._now)
        self._machines = PriceListCache(self._fetch_quotes, MACHINE_SECONDS, clock)
        self._storage = PriceListCache(self._fetch_storage_prices, STORAGE_SECONDS, clock)
        self._url = f"{base_url}/api/retail/prices"
        self._client = httpx.AsyncClient(
            verify=ssl.create_default_context(cafile=ca_path or None), timeout=REQUEST_SECONDS
        )

    async def prices(self, offerings: list[Offering]) -> dict[Offering, Price]:
        """Return recent prices by offering; leave out offerings without a usable price.

        Raises PricesUnavailable if the list has only prices that cannot be read.
        """
        price_by_offering: dict[Offering, Price] = {}
        unreadable = ""
        for pool in sorted({spot_pool_of(offering) for offering in offerings}):
            quotes = await self._machines.get(pool)
            unreadable = unreadable or quotes.unreadable
            for offering in offerings:
                price = quotes.prices.get(offering.capacity_type)
                if spot_pool_of(offering) == pool and price:
                    price_by_offering[offering] = price
        if unreadable and not price_by_offering:
            raise PricesUnavailable(unreadable)
        return price_by_offering

    async def storage(self, account: StorageAccount) -> StoragePrices:
        """Return the account's storage prices: recently listed ones, else the dated table."""
        return await self._storage.get(account) if account.region else storage_prices.TABLE

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _fetch_quotes(self, pool: SpotPool) -> Quotes:
        """Fetch the prices of a VM size in a region by capacity type."""
        sku = lookup(pool.vm_size)
        conditions = {
            "serviceName": "Virtual Machines",
            "armRegionName": pool.region.lower(),
            "armSkuName": sku.vm_size if sku else pool.vm_size,
            "priceType": "Consumption",
        }
        rows = [row async for row in self._rows(conditions)]
        listed_prices = machine_prices.parse_prices(rows, pool, self._now())
        unreadable = next(
            (listed.fault for listed in listed_prices.values() if listed.unreadable), ""
        )
        return Quotes(await self._guard.machines(pool, listed_prices), unreadable)

    async def _fetch_storage_prices(self, account: StorageAccount) -> StoragePrices:
        conditions = {
            "serviceName": "Storage",
            "productName": storage_prices.PRODUCT,
            "armRegionName": account.region.lower(),
            "priceType": "Consumption",
        }
        rows = [row async for row in self._rows(conditions)]
        listed_prices = storage_prices.parse_prices(rows, account, self._now())
        prices = await self._guard.storage(account, listed_prices)
        unreadable = next(
            (listed.fault for listed in listed_prices.values() if listed.unreadable), ""
        )
        if unreadable and not prices:
            raise PricesUnavailable(unreadable)
        return storage_prices.merge(prices, rows, account, self._now())

    async def _rows(self, conditions: dict[str, str]) -> AsyncIterator[Row]:
        """Yield every row of every page; the list's values are case-sensitive."""
        query = " and ".join(f"{name} eq '{_quoted(value)}'" for name, value in conditions.items())
        params = {"api-version": API_VERSION, "$filter": query}  # default: US dollars
        url = str(httpx.URL(self._url, params=params))
        for _ in range(MAX_PAGES):
            page = await self._page(url)
            for row in _as_rows(page["Items"]):
                yield row
            url = page.get("NextPageLink") or ""
            if not url:
                return
        raise PricesUnavailable(f"The price list does not end, asked for {query}.")

    async def _page(self, url: str) -> Row:
        try:
            response = await self._client.get(url)
            response.raise_for_status()
            page = json.loads(response.text, parse_float=Decimal)
        except (httpx.HTTPError, httpx.InvalidURL, TypeError) as error:
            raise PricesUnavailable(f"The price list cannot be read: {error!r}") from error
        except ValueError as error:
            raise PricesUnavailable(f"The price list is no JSON: {error}") from error
        if not isinstance(page, dict) or not isinstance(page.get("Items"), list):
            raise PricesUnavailable("The price list has no Items.")
        if (currency := page.get("BillingCurrency") or "USD") != "USD":
            raise PricesUnavailable(f"The price list is in {currency!r:.20}, not in US dollars.")
        return page


def _quoted(value: str) -> str:
    """Escape a value for an OData filter."""
    return value.replace("'", "''")


def _as_rows(items: list[Any]) -> list[Row]:
    """Return the items of a page that are JSON objects."""
    return [item for item in items if isinstance(item, dict)]


def _wall_clock() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)
