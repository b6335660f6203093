"""`rekindle costs --projects`: spending, savings and evictions of every project."""

from collections.abc import Iterable, Mapping
from typing import Any

from rekindle.cli.command import Cli
from rekindle.cli.formats import count, money, printable_line

Json = dict[str, Any]
PATH = "/organization/costs/projects"
_PAGE = 100
_COLUMNS = ("project", "jobs", "spent", "list price", "saved", "", "evictions")


def all_projects(cli: Cli, days: int) -> Json:
    """Return every page as one document, all as of the first page's time."""
    found: Json = cli.client.get(PATH, days=days, limit=_PAGE)
    page = found
    while page["has_more"]:
        here = {"after": page["last_id"], "until": found["until"]}
        page = cli.client.get(PATH, days=days, limit=_PAGE, **here)
        found["data"] += page["data"]
    return found | {"last_id": page["last_id"] or found["last_id"], "has_more": False}


def by_project(found: Mapping[str, Any]) -> Iterable[Any]:
    """Yield a table with one row per project, and the totals."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in _COLUMNS:
        shown.add_column(column, justify="left" if column == "project" else "right")
    for one in found["data"]:
        shown.add_row(Text(printable_line(one["name"])), *_cells(one))
    if found["data"]:
        yield shown
    whole = found["whole"]
    yield (
        f"{count(found['projects'], 'project')}: machines cost {money(whole['spent'])}, which is "
        f"{money(whole['saved'])} less than their list price ({whole['saved_percent']:g} %), with "
        f"{count(whole['evictions'], 'eviction')}."
    )


def _cells(one: Mapping[str, Any]) -> Iterable[str]:
    dear, saved = money(one["on_demand_equivalent"]), money(one["saved"])
    share = f"{one['saved_percent']:g} %"
    return (str(one["jobs"]), money(one["spent"]), dear, saved, share, str(one["evictions"]))
