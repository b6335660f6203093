"""Azure's public price list (Retail Prices API); it needs no credentials."""

import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable
from decimal import Decimal
from typing import Any

import httpx

from service.domain.fleet import Offering, Price
from service.domain.states import CapacityType
from service.domain.storage_cost import StoragePrices
from service.domain.tiers import Account
from service.pricing import storage_prices
from service.pricing.remembered import Remembered
from service.pricing.source import PricesUnavailable

API_VERSION = "2023-01-01-preview"
REQUEST_SECONDS = 20.0
PAGES_AT_MOST = 50  # of one size in one region; the real list has one
MACHINE_SECONDS = 300.0  # so old a price of a machine may be
STORAGE_SECONDS = 600.0  # the same of storage, which changes a few times a year

Row = dict[str, Any]
Quotes = dict[CapacityType, Price]


class RetailPrices:
    """Linux prices per hour in US dollars, as listed lately; and those of Blob Storage."""

    def __init__(
        self,
        *,
        base_url: str = "https://prices.azure.com",
        ca_path: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._machines = Remembered(self._quoted, MACHINE_SECONDS, clock)
        self._storage = Remembered(self._listed, STORAGE_SECONDS, clock)
        self._url = f"{base_url}/api/retail/prices"
        self._client = httpx.AsyncClient(
            verify=ssl.create_default_context(cafile=ca_path or None), timeout=REQUEST_SECONDS
        )

    async def prices(self, offerings: list[Offering]) -> dict[Offering, Price]:
        """Of each size and region as listed lately; an offering without both is left out."""
        found: dict[Offering, Price] = {}
        for place in sorted({(o.region, o.vm_size) for o in offerings}):
            quotes = await self._machines.of(place)
            for offering in offerings:
                price = quotes.get(offering.capacity_type)
                if (offering.region, offering.vm_size) == place and price:
                    found[offering] = price
        return found

    async def storage(self, account: Account) -> StoragePrices:
        """The account's meters as listed lately, else those of the dated table."""
        return await self._storage.of(account) if account.region else storage_prices.TABLE

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _quoted(self, place: tuple[str, str]) -> Quotes:
        """The prices of a size in a region by capacity type."""
        region, vm_size = place
        conditions = {
            "serviceName": "Virtual Machines",
            "armRegionName": region,
            "armSkuName": vm_size,
            "priceType": "Consumption",
        }
        rows = [row async for row in self._rows(conditions)]
        priced = {capacity: _price(rows, capacity) for capacity in CapacityType}
        return {capacity: price for capacity, price in priced.items() if price}

    async def _listed(self, account: Account) -> StoragePrices:
        conditions = {
            "serviceName": "Storage",
            "productName": storage_prices.PRODUCT,
            "armRegionName": account.region,
            "priceType": "Consumption",
        }
        return storage_prices.listed([row async for row in self._rows(conditions)], account)

    async def _rows(self, conditions: dict[str, str]) -> AsyncIterator[Row]:
        """Every row of every page. The list's values are case-sensitive."""
        query = " and ".join(f"{name} eq '{value}'" for name, value in conditions.items())
        params = {"api-version": API_VERSION, "$filter": query}  # in US dollars, if not told
        url = str(httpx.URL(self._url, params=params))
        for _ in range(PAGES_AT_MOST):
            page = await self._page(url)
            for row in page["Items"]:
                yield row
            if not (url := page.get("NextPageLink") or ""):
                return
        raise PricesUnavailable(f"The price list does not end, asked for {query}.")

    async def _page(self, url: str) -> Row:
        try:
            response = await self._client.get(url)
            response.raise_for_status()
            page = json.loads(response.text, parse_float=Decimal)
        except httpx.HTTPError as error:
            raise PricesUnavailable(f"The price list cannot be read: {error!r}") from error
        except ValueError as error:
            raise PricesUnavailable(f"The price list is no JSON: {error}") from error
        if not isinstance(page, dict) or not isinstance(page.get("Items"), list):
            raise PricesUnavailable("The price list has no Items.")
        return page


def _price(rows: Iterable[Row], capacity_type: CapacityType) -> Price | None:
    linux = [row for row in rows if _is_linux_hour(row)]
    on_demand = _newest(
        row for row in linux if not _meter(row).endswith((" Spot", " Low Priority"))
    )
    spot = _newest(row for row in linux if _meter(row).endswith(" Spot"))
    hourly = spot if capacity_type is CapacityType.SPOT else on_demand
    if hourly is None or on_demand is None:
        return None
    return Price(hourly=hourly, on_demand_hourly=on_demand)


def _is_linux_hour(row: Row) -> bool:
    windows = "windows" in str(row.get("productName", "")).lower()
    per_hour = row.get("unitOfMeasure") == "1 Hour" and row.get("type") == "Consumption"
    return per_hour and not windows


def _meter(row: Row) -> str:
    """Spot and Low Priority are told by the name's end; they are different meters."""
    return str(row.get("skuName") or row.get("meterName") or "")


def _newest(rows: Iterable[Row]) -> Decimal | None:
    """The price of the row that came into force last."""
    newest = max(rows, key=lambda row: str(row.get("effectiveStartDate", "")), default=None)
    return None if newest is None else storage_prices.price_of(newest)
