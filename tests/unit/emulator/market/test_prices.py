"""The price list: filters, pages, currencies, and what it costs to buy years ahead."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clock import Clock
from tests.emulated.inside import Inside, emulator_inside

PRICES = "/api/retail/prices"
NEW = "2023-01-01-preview"
ND = "armSkuName eq 'Standard_ND96amsr_A100_v4' and armRegionName eq 'eastus'"

LISTED = "ND96amsr A100 v4"


async def found(inside: Inside, wanted: str, **query: str) -> list[dict[str, Any]]:
    params = {"api-version": NEW, "$filter": wanted, **query}
    answer = await inside.arm.get(PRICES, params=params)
    return list(answer.raise_for_status().json()["Items"])


@pytest.mark.parametrize(
    ("wanted", "skus"),
    [
        (f"{ND} and priceType eq 'Consumption'", {"", " Spot", " Low Priority"}),
        (f"{ND} and meterName eq '{LISTED} Spot'", {" Spot"}),
        (f"{ND} and serviceName eq 'virtual machines'", set()),
    ],
)
async def test_a_filter_finds_what_it_says(inside: Inside, wanted: str, skus: set[str]) -> None:
    rows = await found(inside, wanted)

    assert {row["skuName"].removeprefix("ND96amsr A100 v4") for row in rows} == skus


async def test_before_2023_a_filter_knows_no_case(tmp_path: Path) -> None:
    wanted = f"{ND} and serviceName eq 'virtual machines'"
    async with emulator_inside(tmp_path, Clock()) as inside:
        assert await found(inside, wanted, **{"api-version": "2021-10-01"})


@pytest.mark.parametrize(
    "wanted",
    [
        "armSkuName eq",
        "armSkuName in ('a', 'b')",
        "not contains(productName, 'Windows')",
        "mood eq 'good'",
        "(armSkuName eq 'a'",
        "armSkuName eq 'a' armSkuName eq 'b'",
        "armSkuName gt 'a'",
        "armSkuName eq 'a",
        " and ".join(["armSkuName eq 'a'"] * 21),
        "(" * 1000,
    ],
)
async def test_a_filter_that_cannot_be_read_is_refused(inside: Inside, wanted: str) -> None:
    answer = await inside.arm.get(PRICES, params={"$filter": wanted})

    assert answer.status_code == 400
    assert answer.json()["Error"]["Message"] == "Invalid OData parameters supplied"


async def test_pages_join_without_a_gap(inside: Inside) -> None:
    everything = await found(inside, ND)
    answer = (await inside.arm.get(PRICES, params={"$filter": ND, "$top": "3"})).json()
    rest = (await inside.arm.get(PRICES, params={"$filter": ND, "$skip": "3"})).json()
    for name in ("$top", "$skip", "currencyCode"):
        assert (await inside.arm.get(PRICES, params={name: "-x"})).status_code == 400

    assert (answer["Count"], answer["NextPageLink"]) == (3, None)
    assert answer["Items"] + rest["Items"] == everything


async def test_a_spot_price_stands_for_a_month_and_a_reservation_for_its_term(
    inside: Inside,
) -> None:
    spot = await found(inside, f"{ND} and skuName eq '{LISTED} Spot'")
    reserved = await found(inside, f"{ND} and priceType eq 'Reservation'")

    assert spot[0]["effectiveStartDate"] == "2026-11-01T00:00:00Z"
    assert spot[0]["effectiveEndDate"] == "2026-11-30T23:59:59Z"
    assert {row["reservationTerm"]: row["retailPrice"] for row in reserved} == {
        "1 Year": 183722.0,
        "3 Years": 378926.0,
    }


async def planted(inside: Inside, **order: Any) -> httpx.Response:  # noqa: ANN401 - JSON
    place = {"vm_size": "Standard_ND96amsr_A100_v4", "region": "eastus"}
    return await inside.metadata.post("/_emulator/market/prices", json={**place, **order})


async def test_a_planted_row_stands_beside_the_sizes_own_with_its_members_changed(
    tmp_path: Path,
) -> None:
    row = {"retailPrice": 0, "effectiveStartDate": "2026-11-19T00:00:00Z", "productName": None}
    async with emulator_inside(tmp_path, Clock()) as inside:
        (await planted(inside, bought=" Spot", row=row)).raise_for_status()
    async with emulator_inside(tmp_path, Clock()) as again:
        own, odd = [r for r in await found(again, ND) if r["skuName"].endswith("Spot")]
        await again.metadata.delete("/_emulator/market/prices")
        left = await found(again, f"{ND} and skuName eq '{LISTED} Spot'")

    assert "productName" not in odd
    assert (odd["retailPrice"], odd["meterId"]) == (0, own["meterId"])
    assert len(left) == 1


async def test_a_planted_row_alone_stands_for_the_sizes_own(inside: Inside) -> None:
    await planted(inside, row={"retailPrice": "free"}, alone=True)
    rows = await found(inside, f"{ND} and skuName eq '{LISTED}'")

    assert [r["retailPrice"] for r in rows if r["type"] == "Consumption"] == ["free"]


async def test_primary_meters_may_be_asked_for_alone(inside: Inside) -> None:
    before = len(await found(inside, ND))
    await planted(inside, row={"isPrimaryMeterRegion": False})
    everything = await found(inside, ND)
    primary = await found(inside, ND, meterRegion="'primary'")
    other = await inside.arm.get(PRICES, params={"meterRegion": "'other'"})

    assert (len(everything), len(primary)) == (before + 1, before)
    assert other.status_code == 400
