"""`rekindle audit`: what exists in Azure against what the database thinks, and what leaks."""

import time
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from rekindle.cli import formats
from rekindle.cli.command import Cli
from rekindle.cli.errors import ExitCode

Json = dict[str, Any]
AUDIT = "/organization/audit"
_PAGE = 1000
_COLUMNS = ("name", "standing", "region", "machines", "job", "attempt is", "age", "per hour")
_WHAT = {
    "used": "a live attempt has them",
    "going": "their attempts are over; they are being deleted",
    "lingering": "deleted long ago, and still there",
    "unknown": "no live attempt has them",
    "missing": "an attempt thinks that they are there, and they are not",
    "stray": "no scale sets, and they carry our tag: nothing of ours makes them",
}


def audit(
    cli: Cli,
    everything: Annotated[
        bool, typer.Option("--all", help="Also show those that a live attempt has.")
    ] = False,
) -> int:
    """Compare Azure with the database. Exit 1 when something leaks or may. For operators."""
    found, summary = _all(cli)
    document = {"object": "list", "data": found, "has_more": False, "summary": summary}
    shown = [f for f in found if everything or f["standing"] != "used"]
    cli.show(document, lambda: view(shown, summary, time.time()))
    return ExitCode.FAILED if summary["leaks"] or summary["unseen"] else ExitCode.OK


def view(found: list[Json], summary: Mapping[str, Any], now: float) -> Iterable[Any]:
    """What was found, a line for each group, and what to do."""
    if found:
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for name in _COLUMNS:
            table.add_column(name, overflow="fold")
        for one in found:
            table.add_row(*(Text(formats.safe(cell)) for cell in _cells(one, now)))
        yield table
    for standing, group in summary["groups"].items():
        if group[_counted_as(standing)]:
            yield f"{standing}: {_counted(standing, group)} - {_WHAT.get(standing, '')}"
    if summary["unseen"]:
        yield formats.safe(summary["unseen"])
    blobs = summary.get("unknown_containers", 0)  # an older service does not tell
    if blobs != 0:
        yield _containers(blobs)
    if not summary["leaks"]:
        yield "No scale set leaks." if summary["unseen"] or blobs != 0 else "Nothing leaks."
        return
    unpriced = summary["unpriced_leaks"]
    more = f" (the price of {unpriced} is not known)" if unpriced else ""
    yield f"{_leaks(summary)} leak{more}. What to do: docs/runbook.md"


def _containers(number: int | None) -> str:
    """No leaks: they may be of another service's jobs. None: Blob was not listed."""
    whose = "of jobs that the database does not know"
    if number is None:
        return f"Whether Blob holds containers {whose} is not known: it did not answer."
    held = formats.count(number, "container")
    return f"Blob holds {held} {whose}. What to do: docs/runbook.md (containers.unknown)"


def _leaks(summary: Mapping[str, Any]) -> str:
    """How many of each kind; every stray leaks."""
    strays = summary["groups"]["stray"]["resources"]
    sets = summary["leaks"] - strays
    kinds = ((sets, "scale set"), (strays, "other resource"))
    return " and ".join(formats.count(number, noun) for number, noun in kinds if number)


def _counted_as(standing: str) -> str:
    return "resources" if standing == "stray" else "scale_sets"


def _counted(standing: str, group: Mapping[str, Any]) -> str:
    if standing == "stray":
        return formats.count(group["resources"], "resource")
    sets = formats.count(group["scale_sets"], "scale set")
    machines = formats.count(group["machines"], "machine")
    return f"{sets} with {machines}, {formats.money(group['per_hour'])} per hour"


def _all(cli: Cli) -> tuple[list[Json], Json]:
    """Every page. The summary is the last page's: it is of all that was there then."""
    found: list[Json] = []
    while True:
        after = found[-1]["id"] if found else None
        page = cli.client.get(AUDIT, limit=_PAGE, after=after)
        found += page["data"]
        if not page["has_more"]:
            return found, page["summary"]


def _cells(one: Mapping[str, Any], now: float) -> Iterable[str]:
    age = formats.duration(now - one["since"]) if one["since"] else "?"
    return (
        one["id"],
        one["standing"],
        f"{one['vm_size'] or one['type']} in {one['region']}",
        str(one["machines"]),
        one["job"] or "-",
        "-" if one["standing"] == "stray" else one["attempt_state"] or "not known",
        age,
        _cost(one),
    )


def _cost(one: Mapping[str, Any]) -> str:
    """`?` where nobody knows it; `$16.88 if spot` where nobody knows how it was bought."""
    if not one["per_hour"]:
        return "?"
    how = one.get("per_hour_if")  # an older service does not tell
    return formats.money(one["per_hour"]) + (f" if {formats.safe(how)}" if how else "")
