"""Resource Graph: the query that Rekindle sends, and the refusal of every other."""

from pathlib import Path
from typing import Any

import pytest

from tests.clock import Clock
from tests.emulated.inside import Inside, emulator_inside

GRAPH = "/providers/Microsoft.ResourceGraph/resources?api-version=2021-03-01"
QUERY = (
    "SpotResources | where type =~ 'microsoft.compute/{}' | where sku.name in~ "
    "('Standard_ND96amsr_A100_v4', 'Standard_D2s_v4') and location in~ ('eastus', 'westus2') "
    "| project size = tostring(sku.name), location, {}"
)
PRICES = QUERY.format("skuspotpricehistory/ostype/location", "prices = properties.spotPrices")


async def ask(inside: Inside, query: str, **options: object) -> dict[str, Any]:
    answer = await inside.arm.post(GRAPH, json={"query": query, "options": options})
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


async def test_prices_are_told_of_each_size_in_each_region(inside: Inside) -> None:
    rows = (await ask(inside, PRICES))["data"]

    assert [(row["size"], row["location"]) for row in rows] == [
        ("standard_nd96amsr_a100_v4", "eastus"),
        ("standard_nd96amsr_a100_v4", "westus2"),
    ]
    assert rows[0]["prices"][0]["priceUSD"] == 8.441552


async def test_eviction_rates_are_bands(tmp_path: Path) -> None:
    query = QUERY.format("skuspotevictionrate/location", "r = tostring(properties.evictionRate)")
    async with emulator_inside(tmp_path, Clock()) as inside:
        rows = (await ask(inside, query))["data"]

    assert {row["r"] for row in rows} == {"0-5"}


async def test_pages_go_on_from_the_token(inside: Inside) -> None:
    first = await ask(inside, PRICES, **{"$top": 1})
    last = await ask(inside, PRICES, **{"$top": 1, "$skipToken": first["$skipToken"]})
    everything = await ask(inside, PRICES)

    assert first["data"] + last["data"] == everything["data"]
    assert "$skipToken" not in last


@pytest.mark.parametrize("query", ["", "where where", "Resources | take 1", "(" * 5000])
async def test_any_other_query_is_refused_and_told_which_one_there_is(
    inside: Inside, query: str
) -> None:
    answer = await inside.arm.post(GRAPH, json={"query": query})

    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "BadRequest")
    assert [row["code"] for row in error["details"]] == ["InvalidQuery", "ParserFailure"]
    assert "SpotResources | where type" in error["details"][1]["message"]
