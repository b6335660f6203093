"""Rows of Azure's price list that are no price of Blob Storage today."""

import json
from decimal import Decimal

import pytest

from service.domain.storage.access_tiers import AccessTier, StorageAccount
from service.pricing.storage_prices import TABLE
from tests.clock import Clock
from tests.price_list import PriceList, Reader, told

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
    "a negative price": _blob(-1, effectiveStartDate=LATER),
    "text": _blob("cheap", effectiveStartDate=LATER),
    "the future": _blob(0.02, effectiveStartDate=FUTURE),
    "the past": _blob(0.02, effectiveStartDate=LATER, effectiveEndDate=PAST),
    "reserved": _blob(150, effectiveStartDate=LATER, type="Reservation"),
    "euros": _blob(0.02, effectiveStartDate=LATER, currencyCode="EUR"),
    "a terabyte": _blob(15, effectiveStartDate=LATER, unitOfMeasure="1 TB/Month"),
    "the price of much": _blob(0.01, effectiveStartDate=LATER, tierMinimumUnits="51200.0"),
    "another product": _blob(0.02, effectiveStartDate=LATER, productName="Files v2"),
    "another region": _blob(0.02, effectiveStartDate=LATER, armRegionName="westus"),
    "no row": "[]",
}


@pytest.mark.parametrize("row", NO_STORAGE_PRICES.values(), ids=NO_STORAGE_PRICES.keys())
async def test_a_newer_row_of_storage_that_is_no_price_changes_nothing(
    price_list: PriceList, reader: Reader, row: str
) -> None:
    price_list.will_say(row, _blob(0.015), row)

    found = await reader.open().storage(StorageAccount(region="eastus"))

    assert found.tiers[AccessTier.COOL].month == Decimal("0.015")


@pytest.mark.parametrize("first", [0.5, 0.0001, 0])
async def test_a_first_price_of_storage_far_from_the_table_is_the_table_s(
    price_list: PriceList, reader: Reader, first: float
) -> None:
    price_list.will_say(_blob(first))

    assert await reader.open().storage(StorageAccount(region="eastus")) == TABLE


async def test_a_price_of_storage_that_jumps_is_used_a_day_later(
    price_list: PriceList, reader: Reader, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    prices, found = reader.open(), []
    for price, later in ((0.015, 0), (0.09, 1), (0.09, 25)):
        price_list.will_only_say(_blob(price))
        clock.advance(hours=later)
        found.append(
            (await prices.storage(StorageAccount(region="eastus"))).tiers[AccessTier.COOL].month
        )

    assert found == [Decimal("0.015"), Decimal("0.015"), Decimal("0.09")]
    assert len(told(caplog)) == 1
