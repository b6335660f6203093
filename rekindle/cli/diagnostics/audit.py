"""`rekindle audit`: compare Azure resources with the database and report leaks."""

import time
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer
from rich.text import Text

from rekindle.cli import formats
from rekindle.cli.command import Cli
from rekindle.cli.errors import ExitCode
from rekindle.cli.tables import new_table

Json = dict[str, Any]
AUDIT = "/organization/audit"
_PAGE = 1000
_COLUMNS = ("name", "standing", "region", "machines", "job", "attempt is", "age", "per hour")
_STANDINGS = {
    "used": "used by a live attempt",
    "going": "their attempts ended; deletion is in progress",
    "lingering": "deleted long ago but still exist",
    "unknown": "not used by any live attempt",
    "missing": "expected by an attempt but do not exist",
    "untracked": "not scale sets but carry our tag; Rekindle does not create them",
}


def audit_resources(
    cli: Cli,
    everything: Annotated[
        bool, typer.Option("--all", help="Also show resources of live attempts.")
    ] = False,
) -> int:
    """Compare Azure with the database (operators only). Exit code 1 if a resource may leak."""
    findings, summary = _read_findings(cli)
    document = {"object": "list", "data": findings, "has_more": False, "summary": summary}
    visible = [f for f in findings if everything or f["standing"] != "used"]
    cli.print_result(document, lambda: audit_lines(visible, summary, time.time()))
    return ExitCode.FAILED if summary["leaks"] or summary["unseen"] else ExitCode.OK


def audit_lines(findings: list[Json], summary: Mapping[str, Any], now: float) -> Iterable[Any]:
    """Yield a table of findings, a line per group, and what to do."""
    if findings:
        table = new_table(*_COLUMNS)
        for finding in findings:
            table.add_row(*(Text(formats.printable_line(cell)) for cell in _cells(finding, now)))
        yield table
    for standing, group in summary["groups"].items():
        if group[_count_member(standing)]:
            yield f"{standing}: {_group_counts(standing, group)} - {_STANDINGS.get(standing, '')}"
    if summary["unseen"]:
        yield formats.printable_line(summary["unseen"])
    blobs = summary.get("unknown_containers", 0)  # older services do not report it
    if blobs != 0:
        yield _container_line(blobs)
    if not summary["leaks"]:
        yield "No scale set leaks." if summary["unseen"] or blobs != 0 else "Nothing leaks."
        return
    unpriced = summary["unpriced_leaks"]
    price_note = f" (the price of {unpriced} is not known)" if unpriced else ""
    yield f"{_leak_counts(summary)} leak{price_note}. See docs/runbook.md"


def _container_line(number: int | None) -> str:
    """Return the number of unknown containers; None if Blob was not listed. They are not leaks."""
    scope = "of unknown jobs"
    if number is None:
        return f"Blob did not answer; containers {scope} were not counted."
    count = formats.count(number, "container")
    return f"Blob has {count} {scope}. See docs/runbook.md (containers.unknown)"


def _leak_counts(summary: Mapping[str, Any]) -> str:
    """Return the number of leaks by kind; every untracked resource is a leak."""
    untracked = summary["groups"]["untracked"]["resources"]
    sets = summary["leaks"] - untracked
    kinds = ((sets, "scale set"), (untracked, "other resource"))
    return " and ".join(formats.count(number, noun) for number, noun in kinds if number)


def _count_member(standing: str) -> str:
    return "resources" if standing == "untracked" else "scale_sets"


def _group_counts(standing: str, group: Mapping[str, Any]) -> str:
    if standing == "untracked":
        return formats.count(group["resources"], "resource")
    sets = formats.count(group["scale_sets"], "scale set")
    machines = formats.count(group["machines"], "machine")
    return f"{sets} with {machines}, {formats.money(group['per_hour'])} per hour"


def _read_findings(cli: Cli) -> tuple[list[Json], Json]:
    """Return all findings, and the last page's summary, which covers everything."""
    findings: list[Json] = []
    while True:
        after = findings[-1]["id"] if findings else None
        page = cli.client.get(AUDIT, limit=_PAGE, after=after)
        findings += page["data"]
        if not page["has_more"]:
            return findings, page["summary"]


def _cells(finding: Mapping[str, Any], now: float) -> Iterable[str]:
    age = formats.duration(now - finding["since"]) if finding["since"] else "?"
    return (
        finding["id"],
        finding["standing"],
        f"{finding['vm_size'] or finding['type']} in {finding['region']}",
        str(finding["machines"]),
        finding["job"] or "-",
        "-" if finding["standing"] == "untracked" else finding["attempt_state"] or "not known",
        age,
        _hourly_cost(finding),
    )


def _hourly_cost(finding: Mapping[str, Any]) -> str:
    """Return the hourly cost; `?` if unknown, `$16.88 if spot` if the purchase type is unknown."""
    if not finding["per_hour"]:
        return "?"
    purchase = finding.get("per_hour_if")  # older services do not report it
    return formats.money(finding["per_hour"]) + (
        f" if {formats.printable_line(purchase)}" if purchase else ""
    )
