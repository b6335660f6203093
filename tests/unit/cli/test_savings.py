"""`rekindle costs --projects` reads every page of the first one's moment."""

from types import SimpleNamespace
from typing import Any

from rekindle.cli.command import Cli
from rekindle.cli.connection import ConnectionOptions
from rekindle.cli.projects.savings import read_all_projects


def test_every_page_is_of_the_moment_of_the_first() -> None:
    asked: list[dict[str, Any]] = []

    def get(_: str, **query: Any) -> dict[str, Any]:  # noqa: ANN401 - a query
        asked.append(query)
        n = len(asked)
        return {"data": [n], "last_id": f"p-{n}", "has_more": n < 3, "until": 100 * n}

    cli = Cli(ConnectionOptions(), as_json=True)
    vars(cli)["client"] = SimpleNamespace(get=get)

    assert read_all_projects(cli, 7)["data"] == [1, 2, 3]
    assert [(query.get("after"), query.get("until")) for query in asked] == [
        (None, None),
        ("p-1", 100),
        ("p-2", 100),
    ]
