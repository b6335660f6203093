"""Resource Graph: the queries of Microsoft's pages, and those that cannot be read."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clock import Clock
from tests.emulator_inside import HERE, Inside, emulator_inside
from tests.emulator_process import GROUP, SUBSCRIPTION, scale_set

GRAPH = "/providers/Microsoft.ResourceGraph/resources?api-version=2021-03-01"
SET = f"{HERE}/resourceGroups/{GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets/rk-1"
ND = "standard_nd96amsr_a100_v4"
PRICES = "SpotResources | where type =~ 'microsoft.compute/skuspotpricehistory/ostype/location'"
RATES = "SpotResources | where type =~ 'microsoft.compute/skuspotevictionrate/location'"
OTHERS = "SpotResources | where type =~ 'microsoft.compute/skualternativespotvmsize/location'"


async def ask(inside: Inside, query: str, **body: object) -> dict[str, Any]:
    answer = await inside.arm.post(GRAPH, json={"query": query, **body})
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


async def data(inside: Inside, query: str) -> list[dict[str, Any]]:
    return list((await ask(inside, query))["data"])


async def test_the_newest_spot_price_is_first(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock()) as inside:
        rows = await data(
            inside,
            f"{PRICES}\n| where sku.name in~ ('{ND.upper()}', 'standard_d2s_v4')"
            "\n| where properties.osType =~ 'linux'"
            "\n| where location in~ ('eastus', 'southcentralus')"
            "\n| project skuName = tostring(sku.name), osType = tostring(properties.osType),"
            " location, latestSpotPriceUSD = todouble(properties.spotPrices[0].priceUSD)"
            "\n| order by latestSpotPriceUSD asc",
        )

    assert [row["location"] for row in rows] == ["eastus", "southcentralus"]
    assert rows[0] == {
        "skuName": ND,
        "osType": "Linux",
        "location": "eastus",
        "latestSpotPriceUSD": 8.441552,
    }


async def test_eviction_rates_join_the_alternatives(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock()) as inside:
        rows = await data(
            inside,
            f"{RATES} | where location in~ ('westus2') | project SKU_Name = tostring(sku.name),"
            " Location = location, rate = tostring(properties.evictionRate)"
            f"| join kind=inner ({OTHERS} | project SKU_Name = tostring(sku.name),"
            " Location = location, best = tostring(properties.alternativeSkus[0].vmSku))"
            " on SKU_Name, Location | where SKU_Name == 'standard_nd96amsr_a100_v4'",
        )

    assert [(row["rate"], row["best"]) for row in rows] == [("0-5", "Standard_ND96asr_v4")]


async def test_scale_sets_are_resources(tmp_path: Path) -> None:
    wanted = "Resources | where type =~ 'microsoft.compute/virtualmachinescalesets'"
    async with emulator_inside(tmp_path, Clock()) as inside:
        await inside.make_group()
        await inside.arm.put(SET, json=scale_set(1))
        rows = await data(inside, f"{wanted} | project name, id, sku.capacity, tags, resourceGroup")
        elsewhere = await ask(inside, wanted, subscriptions=["other"])
        here = await ask(inside, f"{wanted} | count", subscriptions=[SUBSCRIPTION])

    assert rows[0]["name"] == "rk-1"
    assert rows[0]["sku_capacity"] == 1
    assert rows[0]["tags"] == {"rekindle-owner": "test"}
    assert elsewhere["data"] == []
    assert here["data"] == [{"Count": 1}]


@pytest.mark.parametrize(
    ("stages", "count"),
    [
        ("| where sku contains 'ND96AMSR' | distinct location", 6),
        ("| where tolower(location) == 'eastus' and (kind has 'linux' or kind == '')", 8),
        ("| where location !in ('eastus') | summarize n = count() by location | top 2 by n", 2),
        ("| mv-expand p = properties.spotPrices | extend u = p.priceUSD * 2 | where u > 150", 3),
        ("| where not(isempty(location)) and location startswith 'sweden' | limit 1", 1),
        ("| summarize sum(array_length(properties.spotPrices)), max(location)", 1),
        ('| where name == "nothing" // a comment\n| project-away properties', 0),
    ],
)
async def test_stages_follow_each_other(tmp_path: Path, stages: str, count: int) -> None:
    async with emulator_inside(tmp_path, Clock()) as inside:
        assert len(await data(inside, f"{PRICES} {stages}")) == count


async def test_pages_go_on_from_the_token(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock()) as inside:
        everything = await data(inside, PRICES)
        found, options = [], {"$top": 10}
        while True:
            page = await ask(inside, PRICES, options=options)
            found += page["data"]
            if "$skipToken" not in page:
                break
            options = {"$top": 10, "$skipToken": page["$skipToken"]}

    assert found == everything
    assert page["totalRecords"] == len(everything)


async def test_a_table_has_columns_with_types(tmp_path: Path) -> None:
    query = f"{PRICES} | project location, usd = properties.spotPrices[0].priceUSD | limit 1"
    async with emulator_inside(tmp_path, Clock()) as inside:
        table = (await ask(inside, query, options={"resultFormat": "table"}))["data"]

    assert table["columns"] == [
        {"name": "location", "type": "string"},
        {"name": "usd", "type": "number"},
    ]
    assert table["rows"] == [["eastus", 8.441552]]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("where where", "ParserFailure"),
        ("Resources | frobnicate", "ParserFailure"),
        ("Resources | where name == 'a", "ParserFailure"),
        ("Resources | where name == ", "ParserFailure"),
        ("Resources | take many", "ParserFailure"),
        ("Resources | take 99999999999999999999", "ParserFailure"),
        ("Nowhere | take 1", "InvalidQuery"),
        ("SpotResources | where mood == 'good'", "InvalidQuery"),
        ("SpotResources | extend a = sing(name)", "InvalidQuery"),
        ("SpotResources | extend a = tolower()", "ArgumentsMismatch"),
        ("Resources | where " + "(" * 5000, "ParserFailure"),
        ("SpotResources | where " + " or ".join(["name == 'a'"] * 5000), "ParserFailure"),
        ("a | join (" * 5000, "ParserFailure"),
        ("", "EmptyQuery"),
    ],
)
async def test_a_query_that_cannot_be_read_is_refused(
    tmp_path: Path, query: str, code: str
) -> None:
    async with emulator_inside(tmp_path, Clock()) as inside:
        answer = await inside.arm.post(GRAPH, json={"query": query})

    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "BadRequest")
    assert [row["code"] for row in error["details"]] == ["InvalidQuery", code]
    assert "correlationId" in error["message"]


async def test_numbers_out_of_reach_are_null(tmp_path: Path) -> None:
    biggest = "*".join(["999999999999999"] * 30)
    async with emulator_inside(tmp_path, Clock()) as inside:
        rows = await data(
            inside,
            f"SpotResources | limit 1 | project a = {biggest}, b = todouble('nan'),"
            " c = todouble('inf'), d = 1 / 0, e = toint(true), f = name + 1",
        )

    assert json.dumps(rows[0], allow_nan=False)
    assert rows == [{"a": None, "b": None, "c": None, "d": None, "e": 1, "f": None}]
