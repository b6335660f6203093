"""The market: the price list, Resource Graph, placement scores, and restricted sizes."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clock import Clock
from tests.emulated.inside import HERE, SET, Inside, emulator_inside
from tests.emulated.process import scale_set

PRICES = "/api/retail/prices"
NEW = "2023-01-01-preview"
OFFER = "armSkuName eq 'Standard_ND96amsr_A100_v4' and armRegionName eq 'eastus'"

LISTED = "ND96amsr A100 v4"


async def list_prices(inside: Inside, filter_text: str, **query: str) -> list[dict[str, Any]]:
    params = {"api-version": NEW, "$filter": filter_text, **query}
    response = await inside.arm.get(PRICES, params=params)
    return list(response.raise_for_status().json()["Items"])


@pytest.mark.parametrize(
    ("filter_text", "skus"),
    [
        (f"{OFFER} and priceType eq 'Consumption'", {"", " Spot", " Low Priority"}),
        (f"{OFFER} and meterName eq '{LISTED} Spot'", {" Spot"}),
        (f"{OFFER} and serviceName eq 'virtual machines'", set()),
    ],
)
async def test_a_filter_finds_what_it_says(
    inside: Inside, filter_text: str, skus: set[str]
) -> None:
    rows = await list_prices(inside, filter_text)

    assert {row["skuName"].removeprefix("ND96amsr A100 v4") for row in rows} == skus


async def test_before_2023_a_filter_knows_no_case(tmp_path: Path) -> None:
    filter_text = f"{OFFER} and serviceName eq 'virtual machines'"
    async with emulator_inside(tmp_path, Clock()) as inside:
        assert await list_prices(inside, filter_text, **{"api-version": "2021-10-01"})


@pytest.mark.parametrize(
    "filter_text",
    [
        "armSkuName eq",
        "not contains(productName, 'Windows')",
        "mood eq 'good'",
        "armSkuName eq 'a",
        " and ".join(["armSkuName eq 'a'"] * 21),
        "(" * 1000,
    ],
)
async def test_a_filter_that_cannot_be_read_is_refused(inside: Inside, filter_text: str) -> None:
    response = await inside.arm.get(PRICES, params={"$filter": filter_text})

    assert response.status_code == 400
    assert response.json()["Error"]["Message"] == "Invalid OData parameters supplied"


async def test_pages_join_without_a_gap(inside: Inside) -> None:
    everything = await list_prices(inside, OFFER)
    response = (await inside.arm.get(PRICES, params={"$filter": OFFER, "$top": "3"})).json()
    second_page = (await inside.arm.get(PRICES, params={"$filter": OFFER, "$skip": "3"})).json()
    for name in ("$top", "$skip", "currencyCode"):
        assert (await inside.arm.get(PRICES, params={name: "-x"})).status_code == 400

    assert (response["Count"], response["NextPageLink"]) == (3, None)
    assert response["Items"] + second_page["Items"] == everything


async def test_a_spot_price_stands_for_a_month_and_a_reservation_for_its_term(
    inside: Inside,
) -> None:
    spot = await list_prices(inside, f"{OFFER} and skuName eq '{LISTED} Spot'")
    reserved = await list_prices(inside, f"{OFFER} and priceType eq 'Reservation'")

    assert spot[0]["effectiveStartDate"] == "2026-11-01T00:00:00Z"
    assert spot[0]["effectiveEndDate"] == "2026-11-30T23:59:59Z"
    assert {row["reservationTerm"]: row["retailPrice"] for row in reserved} == {
        "1 Year": 183722.0,
        "3 Years": 378926.0,
    }


async def planted(inside: Inside, **order: Any) -> httpx.Response:  # noqa: ANN401 - JSON
    offering = {"vm_size": "Standard_ND96amsr_A100_v4", "region": "eastus"}
    return await inside.metadata.post("/_emulator/market/prices", json={**offering, **order})


async def test_a_planted_row_stands_beside_the_sizes_own_with_its_members_changed(
    tmp_path: Path,
) -> None:
    row = {"retailPrice": 0, "effectiveStartDate": "2026-11-19T00:00:00Z", "productName": None}
    async with emulator_inside(tmp_path, Clock()) as inside:
        (await planted(inside, bought=" Spot", row=row)).raise_for_status()
    async with emulator_inside(tmp_path, Clock()) as restarted:
        own, odd = [r for r in await list_prices(restarted, OFFER) if r["skuName"].endswith("Spot")]
        await restarted.metadata.delete("/_emulator/market/prices")
        remaining = await list_prices(restarted, f"{OFFER} and skuName eq '{LISTED} Spot'")

    assert "productName" not in odd
    assert (odd["retailPrice"], odd["meterId"]) == (0, own["meterId"])
    assert len(remaining) == 1


async def test_primary_meters_may_be_asked_for_alone(inside: Inside) -> None:
    before = len(await list_prices(inside, OFFER))
    await planted(inside, row={"isPrimaryMeterRegion": False})
    everything = await list_prices(inside, OFFER)
    primary = await list_prices(inside, OFFER, meterRegion="'primary'")
    refused = await inside.arm.get(PRICES, params={"meterRegion": "'other'"})

    await inside.metadata.delete("/_emulator/market/prices")
    await planted(inside, row={"retailPrice": "free"}, alone=True)
    alone = await list_prices(inside, f"{OFFER} and skuName eq '{LISTED}'")

    assert [r["retailPrice"] for r in alone if r["type"] == "Consumption"] == ["free"]
    assert (len(everything), len(primary)) == (before + 1, before)
    assert refused.status_code == 400


GRAPH = "/providers/Microsoft.ResourceGraph/resources?api-version=2021-03-01"


@pytest.mark.parametrize("query", ["", "where where", "Resources | take 1", "(" * 5000])
async def test_any_other_query_is_refused_and_told_which_one_there_is(
    inside: Inside, query: str
) -> None:
    response = await inside.arm.post(GRAPH, json={"query": query})

    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "BadRequest")
    assert [row["code"] for row in error["details"]] == ["InvalidQuery", "ParserFailure"]
    assert "SpotResources | where type" in error["details"][1]["message"]


GENERATE = (
    f"{HERE}/providers/Microsoft.Compute/locations/eastus/placementScores/spot/generate"
    "?api-version=2025-06-05"
)
ND = "Standard_ND96amsr_A100_v4"
PLACEMENT = {"desiredLocations": ["eastus"], "desiredSizes": [{"sku": ND}], "desiredCount": 2}


async def scores(inside: Inside, **members: object) -> list[dict[str, Any]]:
    response = await inside.arm.post(GENERATE, json=PLACEMENT | members)
    return list(response.raise_for_status().json()["placementScores"])


@pytest.mark.parametrize(
    ("room", "score"), [(4, "High"), (3, "Medium"), (1, "Low"), (None, "High")]
)
async def test_the_score_follows_the_room(tmp_path: Path, room: int | None, score: str) -> None:
    capacity = {"region": "eastus", "vm_size": ND, "available": room}
    async with emulator_inside(tmp_path, Clock()) as inside:
        await inside.arm.post("/_emulator/capacity", json=capacity)
        rows = await scores(inside)
        assert await scores(inside) == rows

    assert rows == [{"sku": ND, "region": "eastus", "score": score, "isQuotaAvailable": True}]


async def test_the_quota_counts_all_that_is_wanted(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock(), spot_quota=191) as inside:
        assert [row["isQuotaAvailable"] for row in await scores(inside)] == [False]
        assert [row["isQuotaAvailable"] for row in await scores(inside, desiredCount=1)] == [True]


async def test_each_zone_has_its_score(tmp_path: Path) -> None:
    size = "Standard_NC24ads_A100_v4"
    async with emulator_inside(tmp_path, Clock()) as inside:
        bar = {"vm_size": size, "region": "eastus", "zones": ["2"]}
        await inside.arm.post("/_emulator/market/restrictions", json=bar)
        rows = await scores(inside, desiredSizes=[{"sku": size}], availabilityZones=True)

    assert {row["availabilityZone"]: row["score"] for row in rows} == {
        "1": "High",
        "2": "RestrictedSkuNotAvailable",
        "3": "High",
    }


SKUS = f"{HERE}/providers/Microsoft.Compute/skus"


async def skus(inside: Inside, **query: str) -> dict[str, dict[str, Any]]:
    response = await inside.arm.get(SKUS, params={"api-version": "2021-07-01", **query})
    return {row["name"]: row for row in response.raise_for_status().json()["value"]}


async def restrict(inside: Inside, **body: object) -> int:
    order = {"vm_size": ND, "region": "eastus", **body}
    return (await inside.arm.post("/_emulator/market/restrictions", json=order)).status_code


async def test_a_restricted_size_is_told_and_refused(inside: Inside) -> None:
    assert await restrict(inside) == 200
    restrictions = (await skus(inside, **{"$filter": "location eq 'eastus'"}))[ND]["restrictions"]
    refused = await inside.arm.put(SET, json=scale_set(1))
    await restrict(inside, reason=None)
    response = await inside.arm.put(SET, json=scale_set(1))

    assert restrictions[0]["type"] == "Location"
    assert restrictions[0]["reasonCode"] == "NotAvailableForSubscription"
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "SkuNotAvailable"
    assert response.status_code == 201


async def test_a_restricted_zone_bars_only_those_who_name_it(inside: Inside) -> None:
    await restrict(inside, zones=["1"], reason="QuotaId")
    sku = (await skus(inside))[ND]
    zonal = await inside.arm.put(SET, json=scale_set(1) | {"zones": ["1"]})
    regional = await inside.arm.put(SET, json=scale_set(1))

    assert sku["name"] == ND
    assert zonal.json()["error"]["code"] == "SkuNotAvailable"
    assert regional.status_code == 201
