"""Resource Graph: the query that Rekindle sends, and the refusal of every other."""

import pytest

from tests.emulated.inside import Inside

GRAPH = "/providers/Microsoft.ResourceGraph/resources?api-version=2021-03-01"


@pytest.mark.parametrize("query", ["", "where where", "Resources | take 1", "(" * 5000])
async def test_any_other_query_is_refused_and_told_which_one_there_is(
    inside: Inside, query: str
) -> None:
    answer = await inside.arm.post(GRAPH, json={"query": query})

    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "BadRequest")
    assert [row["code"] for row in error["details"]] == ["InvalidQuery", "ParserFailure"]
    assert "SpotResources | where type" in error["details"][1]["message"]
