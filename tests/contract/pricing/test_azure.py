"""Contract of PriceSource, and the reader of Azure's price list with prepared pages."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal

import pytest

from service.domain.cloud.fleet import Offering, Price
from service.domain.states import CapacityType
from service.domain.storage.access_tiers import AccessTier, StorageAccount
from service.pricing.azure.retail import RetailPrices
from service.pricing.fixed import FixedPrices
from service.pricing.source import PriceSource, PricesUnavailable
from service.pricing.storage_prices import TABLE
from tests.clock import Clock
from tests.emulated.process import Emulator
from tests.price_list import PriceList, Reader, warned_causes

SPOT = Offering(region="eastus", vm_size="Standard_D2s_v5", capacity_type=CapacityType.SPOT)
ON_DEMAND = replace(SPOT, capacity_type=CapacityType.ON_DEMAND)


@pytest.fixture
async def prices(price_list: PriceList) -> AsyncIterator[RetailPrices]:
    retail_prices = RetailPrices(base_url=price_list.url)
    yield retail_prices
    await retail_prices.close()


@pytest.mark.parametrize("page", ["", "<html>", "[]", "{}", '{"Items": {}}'])
async def test_a_list_that_cannot_be_read_is_unavailable(
    price_list: PriceList, prices: RetailPrices, page: str
) -> None:
    price_list.pages.append(page)
    with pytest.raises(PricesUnavailable):
        await prices.prices([SPOT])


async def test_a_list_that_fails_or_cannot_be_reached_is_unavailable(
    price_list: PriceList, prices: RetailPrices
) -> None:
    price_list.will_say()
    price_list.status = 503
    with pytest.raises(PricesUnavailable, match="503"):
        await prices.prices([SPOT])
    nowhere = RetailPrices(base_url="http://127.0.0.1:9")
    with pytest.raises(PricesUnavailable, match="ConnectError"):
        await nowhere.prices([SPOT])
    await nowhere.close()


async def test_a_list_without_end_is_given_up(price_list: PriceList, prices: RetailPrices) -> None:
    link = f"{price_list.url}/api/retail/prices"
    price_list.pages.append(f'{{"Items": [], "NextPageLink": "{link}"}}')
    with pytest.raises(PricesUnavailable, match="does not end"):
        await prices.prices([SPOT])


async def test_storage_is_priced_by_the_meters_of_its_tier_and_redundancy(
    price_list: PriceList, prices: RetailPrices
) -> None:
    price_list.will_say(
        _meter("Cool LRS", "Cool LRS Data Stored", "0.015"),
        _meter("Cool GRS", "Cool GRS Data Stored", "0.033"),
        _meter("Cool LRS", "Cool Data Retrieval", "0.02"),
        _meter("Hot LRS", "Hot LRS Data Stored", "0.018"),
        _meter("Hot LRS", "Hot LRS Data Stored", "0.017", units="51200.0"),
        _meter("Archive LRS", "Archive Data Retrieval", "0.03"),
        _meter("Archive LRS", "Archive Priority Data Retrieval", "0.2"),
        _meter("Cool LRS", "Cool LRS List and Create Container Operations", "9"),
    )

    storage_prices = await prices.storage(StorageAccount(region="eastus", redundancy="LRS"))

    assert price_list.filters == [
        "serviceName eq 'Storage' and productName eq 'General Block Blob v2'"
        " and armRegionName eq 'eastus' and priceType eq 'Consumption'"
    ]
    cool, table = storage_prices.tiers[AccessTier.COOL], TABLE.tiers[AccessTier.COOL]
    assert (cool.month, cool.retrieval) == (Decimal("0.015"), Decimal("0.02"))
    assert (cool.reads, cool.writes) == (table.reads, table.writes)
    assert storage_prices.tiers[AccessTier.HOT].month == Decimal("0.018")
    assert storage_prices.tiers[AccessTier.ARCHIVE].retrieval == Decimal("0.03")
    assert storage_prices.high_retrieval == Decimal("0.2")
    assert storage_prices.source == "Azure's price list and Microsoft's sample prices"


async def test_storage_that_the_list_does_not_know_has_the_prices_of_the_dated_table(
    price_list: PriceList, prices: RetailPrices
) -> None:
    price_list.will_say(_meter("Cool LRS", "Cool LRS Data Stored", "0.015"))

    assert await prices.storage(StorageAccount(region="eastus", redundancy="ZRS")) == TABLE
    assert await prices.storage(StorageAccount()) == TABLE
    assert len(price_list.filters) == 1
    price_list.will_only_say(_blob("cheap"))
    with pytest.raises(PricesUnavailable, match="no number"):
        await prices.storage(StorageAccount(region="eastus"))


async def test_the_list_of_storage_is_asked_once_in_ten_minutes(price_list: PriceList) -> None:
    at = [0.0]
    prices = RetailPrices(base_url=price_list.url, clock=lambda: at[0])
    price_list.will_say(_meter("Cool LRS", "Cool LRS Data Stored", "0.015"))
    request_counts = []
    for seconds in (5.0, 600.0, 606.0):
        at[0] = seconds
        await prices.storage(StorageAccount(region="eastus"))
        request_counts.append(len(price_list.filters))
    price_list.pages[:] = ["<html>"]
    await prices.storage(StorageAccount(region="eastus"))
    with pytest.raises(PricesUnavailable):
        await prices.storage(StorageAccount(region="westeurope"))
    await prices.close()

    assert request_counts == [1, 1, 2]


async def test_machines_are_asked_about_once_in_five_minutes(price_list: PriceList) -> None:
    at = [0.0]
    prices = RetailPrices(base_url=price_list.url, clock=lambda: at[0])
    price_list.will_say(_row("D2s v5", "0.1"), _row("D2s v5 Spot", "0.02"))
    request_counts = []
    for seconds in (5.0, 305.0, 306.0):
        at[0] = seconds
        await asyncio.gather(prices.prices([SPOT, ON_DEMAND]), prices.prices([SPOT]))
        request_counts.append(len(price_list.filters))
    price_list.pages[:] = ["<html>"]
    at[0] = 1000.0
    cached = await prices.prices([ON_DEMAND])
    await prices.close()

    assert request_counts == [1, 1, 2]
    assert cached == {ON_DEMAND: _price("0.1", "0.1")}


def _meter(sku: str, name: str, price: str, *, units: str = "0.0") -> str:
    return f"""{{"skuName": "{sku}", "meterName": "{name}", "tierMinimumUnits": {units},
        "productName": "General Block Blob v2", "effectiveStartDate": "2026-11-01T00:00:00Z",
        "retailPrice": {price}}}"""


def _row(
    name: str,
    price: str,
    *,
    product: str = "Virtual Machines Dsv5 Series",
    since: str = "2026-11-01T00:00:00Z",
) -> str:
    return f"""{{"skuName": "{name}", "meterName": "{name}", "productName": "{product}",
        "unitOfMeasure": "1 Hour", "type": "Consumption",
        "effectiveStartDate": "{since}", "retailPrice": {price}}}"""


def _price(hourly: str, on_demand: str) -> Price:
    return Price(hourly=Decimal(hourly), on_demand_hourly=Decimal(on_demand))


ND_SPOT = Offering(
    region="eastus", vm_size="Standard_ND96amsr_A100_v4", capacity_type=CapacityType.SPOT
)
ND_ON_DEMAND = replace(ND_SPOT, capacity_type=CapacityType.ON_DEMAND)
ELSEWHERE = replace(ND_SPOT, region="swedencentral")
LISTED = {
    ND_SPOT: Price(hourly=Decimal("8.441552"), on_demand_hourly=Decimal("32.77")),
    ND_ON_DEMAND: Price(hourly=Decimal("32.77"), on_demand_hourly=Decimal("32.77")),
    ELSEWHERE: Price(hourly=Decimal("10.55"), on_demand_hourly=Decimal("39.324")),
}


@pytest.fixture(params=["fixed", "retail"])
async def source(request: pytest.FixtureRequest) -> AsyncIterator[PriceSource]:
    price_source: PriceSource = FixedPrices(LISTED)
    if request.param == "retail":
        emulator: Emulator = request.getfixturevalue("emulator")
        price_source = RetailPrices(base_url=emulator.arm_url, ca_path=emulator.ca)
    yield price_source
    await price_source.close()


async def test_every_tier_of_storage_has_a_price_and_the_prices_a_source(
    source: PriceSource,
) -> None:
    prices = await source.storage(StorageAccount(region="eastus", redundancy="LRS"))

    assert set(prices.tiers) == set(AccessTier)
    months = [prices.tiers[tier].month for tier in AccessTier]
    assert months == sorted(months, reverse=True)
    assert (prices.high_reads, prices.high_retrieval) == (TABLE.high_reads, TABLE.high_retrieval)
    assert prices.source in ("Azure's price list", TABLE.source)


LATER = "2026-11-19T00:00:00Z"  # than the other rows, and in force
FUTURE, PAST = "2026-12-01T00:00:00Z", "2026-11-10T23:59:59Z"


def _blob(price: object, **members: object) -> str:
    row = {
        "skuName": "Cool LRS",
        "meterName": "Cool LRS Data Stored",
        "productName": "General Block Blob v2",
        "unitOfMeasure": "1 GB/Month",
        "tierMinimumUnits": 0.0,
        "type": "Consumption",
        "currencyCode": "USD",
        "effectiveStartDate": "2026-11-01T00:00:00Z",
        "retailPrice": price,
    }
    return json.dumps({**row, **members})


NO_STORAGE_PRICES: dict[str, str] = {
    "$0": _blob(0, effectiveStartDate=LATER),
    "text": _blob("cheap", effectiveStartDate=LATER),
    "the future": _blob(0.02, effectiveStartDate=FUTURE),
    "reserved": _blob(150, effectiveStartDate=LATER, type="Reservation"),
    "euros": _blob(0.02, effectiveStartDate=LATER, currencyCode="EUR"),
    "a terabyte": _blob(15, effectiveStartDate=LATER, unitOfMeasure="1 TB/Month"),
    "the price of much": _blob(0.01, effectiveStartDate=LATER, tierMinimumUnits="51200.0"),
    "another product": _blob(0.02, effectiveStartDate=LATER, productName="Files v2"),
}


@pytest.mark.parametrize("row", NO_STORAGE_PRICES.values(), ids=NO_STORAGE_PRICES.keys())
async def test_a_newer_row_of_storage_that_is_no_price_changes_nothing(
    price_list: PriceList, reader: Reader, row: str
) -> None:
    price_list.will_say(row, _blob(0.015), row)

    storage_prices = await reader.open().storage(StorageAccount(region="eastus"))

    assert storage_prices.tiers[AccessTier.COOL].month == Decimal("0.015")


@pytest.mark.parametrize("first", [0.5, 0.0001, 0])
async def test_a_first_price_of_storage_far_from_the_table_is_the_table_s(
    price_list: PriceList, reader: Reader, first: float
) -> None:
    price_list.will_say(_blob(first))

    assert await reader.open().storage(StorageAccount(region="eastus")) == TABLE


async def test_a_price_of_storage_that_jumps_is_used_a_day_later(
    price_list: PriceList, reader: Reader, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    prices, monthly = reader.open(), []
    for price, later in ((0.015, 0), (0.09, 1), (0.09, 25)):
        price_list.will_only_say(_blob(price))
        clock.advance(hours=later)
        monthly.append(
            (await prices.storage(StorageAccount(region="eastus"))).tiers[AccessTier.COOL].month
        )

    assert monthly == [Decimal("0.015"), Decimal("0.015"), Decimal("0.09")]
    assert len(warned_causes(caplog)) == 1


async def test_only_what_is_asked_for_and_listed_has_its_exact_price(source: PriceSource) -> None:
    unknown = replace(ND_SPOT, vm_size="Standard_Abacus")
    not_sold_there = replace(ND_SPOT, region="northpole")

    assert await source.prices([*LISTED, unknown, not_sold_there]) == LISTED
    assert await source.prices([ELSEWHERE]) == {ELSEWHERE: LISTED[ELSEWHERE]}
    assert await source.prices([]) == {}
