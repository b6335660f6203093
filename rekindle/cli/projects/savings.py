"""`rekindle costs --projects`: spending, savings and evictions of every project."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.text import Text

from rekindle.cli.command import Cli
from rekindle.cli.formats import count, money, printable_line
from rekindle.cli.tables import new_table

Json = dict[str, Any]
PROJECT_COSTS = "/organization/costs/projects"
_PAGE = 100
_NUMBERS = ("jobs", "spent", "list price", "saved", "", "evictions")


def read_all_projects(cli: Cli, days: int) -> Json:
    """Return every page as one document, all as of the first page's time."""
    savings: Json = cli.client.get(PROJECT_COSTS, days=days, limit=_PAGE)
    page = savings
    while page["has_more"]:
        cursor = {"after": page["last_id"], "until": savings["until"]}
        page = cli.client.get(PROJECT_COSTS, days=days, limit=_PAGE, **cursor)
        savings["data"] += page["data"]
    return savings | {"last_id": page["last_id"] or savings["last_id"], "has_more": False}


def project_savings_lines(savings: Mapping[str, Any]) -> Iterable[Any]:
    """Yield a table with one row per project, and the totals."""
    table = new_table("project", *_NUMBERS, right=_NUMBERS)
    for project in savings["data"]:
        table.add_row(Text(printable_line(project["name"])), *_cells(project))
    if savings["data"]:
        yield table
    totals = savings["whole"]
    yield (
        f"{count(savings['projects'], 'project')}: machines cost {money(totals['spent'])}, which "
        f"is {money(totals['saved'])} less than their list price "
        f"({totals['saved_percent']:g} %), with "
        f"{count(totals['evictions'], 'eviction')}."
    )


def _cells(project: Mapping[str, Any]) -> Iterable[str]:
    list_price, saved = money(project["on_demand_equivalent"]), money(project["saved"])
    share = f"{project['saved_percent']:g} %"
    return (
        str(project["jobs"]),
        money(project["spent"]),
        list_price,
        saved,
        share,
        str(project["evictions"]),
    )
