"""A price list like Azure's with prepared pages, and readers of it."""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pytest
from aiohttp import web

from service.domain.cloud.fleet import Offering, Price
from service.domain.states import CapacityType
from service.pricing.azure.retail import RetailPrices
from service.pricing.price_memory import PriceMemory, ProcessMemory
from tests.clock import Clock

SPOT = Offering(region="eastus", vm_size="Standard_D2s_v5", capacity_type=CapacityType.SPOT)
ON_DEMAND = replace(SPOT, capacity_type=CapacityType.ON_DEMAND)
MACHINE: dict[str, Any] = {
    "currencyCode": "USD",
    "tierMinimumUnits": 0.0,
    "armRegionName": "eastus",
    "location": "US East",
    "effectiveStartDate": "2026-11-01T00:00:00Z",
    "meterName": "D2s v5",
    "productName": "Virtual Machines Dsv5 Series",
    "skuName": "D2s v5",
    "serviceName": "Virtual Machines",
    "serviceFamily": "Compute",
    "unitOfMeasure": "1 Hour",
    "type": "Consumption",
    "isPrimaryMeterRegion": True,
    "armSkuName": "Standard_D2s_v5",
}


@dataclass
class PriceList:
    """A price list of prepared pages."""

    url: str = ""
    pages: list[str] = field(default_factory=list)
    status: int = 200
    filters: list[str] = field(default_factory=list)

    def will_say(self, *rows: str, has_next: bool = False) -> None:
        """Add a page; ``has_next`` adds a link to a next page."""
        link = f'"{self.url}/api/retail/prices?page={len(self.pages) + 1}"' if has_next else "null"
        self.pages.append(f'{{"Items": [{", ".join(rows)}], "NextPageLink": {link}}}')

    def will_only_say(self, *rows: str) -> None:
        """Replace all pages by one."""
        self.pages.clear()
        self.will_say(*rows)

    async def answer(self, request: web.Request) -> web.Response:
        self.filters.append(request.query.get("$filter", ""))
        number = int(request.query.get("page", "0"))
        return web.Response(text=self.pages[number], status=self.status)


@asynccontextmanager
async def serving() -> AsyncIterator[PriceList]:
    """Serve a price list over HTTP."""
    price_list = PriceList()
    application = web.Application()
    application.router.add_get("/api/retail/prices", price_list.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    price_list.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield price_list
    await runner.cleanup()


def machine(price: object, **members: object) -> str:
    """Return a row for a Linux machine on demand, with members replaced; None removes a member."""
    row = {**MACHINE, "retailPrice": price, **members}
    return json.dumps({name: value for name, value in row.items() if value is not None})


def spot(price: object, **members: object) -> str:
    """Return a row for a Spot machine, with members replaced."""
    names = {"skuName": "D2s v5 Spot", "meterName": "D2s v5 Spot"}
    return machine(price, **{**names, **members})


@dataclass
class Reader:
    """Reads a price list as one process or several, at times that a test chooses."""

    url: str
    clock: Clock
    memory: ProcessMemory = field(default_factory=ProcessMemory)
    opened: list[RetailPrices] = field(default_factory=list)

    def open(self) -> RetailPrices:
        """Start a new process, which shares only the memory with others."""
        prices = reading(self.url, self.clock, self.memory)
        self.opened.append(prices)
        return prices

    async def price(self, offering: Offering = SPOT, **later: float) -> Price | None:
        """Advance the clock by ``later`` and return the price of an offering."""
        self.clock.advance(**later)
        prices = self.opened[-1] if self.opened else self.open()
        return (await prices.prices([offering])).get(offering)


def reading(url: str, clock: Clock, memory: PriceMemory) -> RetailPrices:
    """Return the service's price reader on a clock that a test moves."""
    return RetailPrices(base_url=url, clock=lambda: clock().timestamp(), now=clock, memory=memory)


def price(hourly: str, on_demand: str) -> Price:
    """Return the price of a machine."""
    return Price(hourly=Decimal(hourly), on_demand_hourly=Decimal(on_demand))


def warned_causes(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the causes of the warnings about prices in the log."""
    warned = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert {record.message for record in warned} <= {"prices.doubted"}
    return [str(vars(record)["cause"]) for record in warned]
