"""`rekindle costs`: a project's cost and savings by day, and a comparison with Azure's bill."""

import time
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.cli.command import Cli
from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.formats import money, printable_line
from rekindle.cli.projects.savings import all_projects, by_project

if TYPE_CHECKING:
    from rich.table import Table

Json = dict[str, Any]
COSTS = "/organization/costs"


def costs(
    cli: Cli,
    days: Annotated[int, typer.Option(min=1, max=90, help="Number of days, today included.")] = 7,
    reconcile: Annotated[
        bool,
        typer.Option("--reconcile", help="Compare with Azure's bill and explain the differences."),
    ] = False,
    projects: Annotated[
        bool,
        typer.Option(
            "--projects", help="Machine costs and savings of all projects (operators only)."
        ),
    ] = False,
) -> None:
    """Show your project's cost and savings by day (UTC), or compare them with Azure's bill."""
    if projects and reconcile:
        raise CliError(
            "--projects and --reconcile cannot be combined.",
            "Leave one out.",
            exit_code=ExitCode.USAGE,
        )
    if projects:
        every = all_projects(cli, days)
        cli.show(every, lambda: by_project(every))
        return
    if reconcile:
        told = cli.client.get(f"{COSTS}/reconciliation", days=days)
        cli.show(told, lambda: compared(told))
        return
    found = cli.client.get(COSTS, days=days)
    cli.show(found, lambda: by_day(found))


def by_day(found: Mapping[str, Any]) -> Iterable[Any]:
    """Yield a table with one row per day, and the totals."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("day", "machines", "storage", "on demand", "saved"):
        shown.add_column(column, justify="left" if column == "day" else "right")
    for bucket in found["data"]:
        lines = {r["line_item"]: r["amount"]["value"] for r in bucket["results"]}
        shown.add_row(
            time.strftime("%Y-%m-%d", time.gmtime(bucket["start_time"])),
            *(money(f"{lines.get(name, 0):.2f}") for name in ("machines", "storage")),
            *(money(bucket[name]) for name in ("on_demand_equivalent", "saved")),
        )
    yield shown
    yield (
        f"{money(found['total'])} in total; machines saved {money(found['saved'])} compared to "
        f"on-demand ({found['saved_percent']:g} %)."
    )


def compared(told: Mapping[str, Any]) -> Iterable[Any]:
    """Yield the totals, a line for each difference, and the attempts that differ most."""
    if told["told_until"] is None:
        yield "Azure has not published a bill yet; it is a day late. Try again tomorrow."
    else:
        days = f"{told['since']} to {told['until']}"
        yield f"{days}; Azure's bill is complete up to {told['told_until']}."
    if told["trouble"]:
        at = time.strftime("%Y-%m-%d %H:%M", time.gmtime(told["trouble"]["at"]))
        yield f"At {at} UTC Azure did not answer: {told['trouble']['message']}"
    whole = told["whole"]
    yield f"Rekindle's ledger {money(whole['metered'])}, Azure's bill {money(whole['billed'])}."
    yield from (f"  {difference['why']}" for difference in whole["differences"])
    yield from _of_nobody(told.get("of_nobody") or [])
    apart = [line for line in told["attempts"] if line["differences"]]
    if apart:
        yield _attempts(apart)
    if told["has_more"]:
        yield f"Showing the {len(told['attempts'])} attempts with the largest differences."


def _of_nobody(lines: list[Json]) -> Iterable[str]:
    """Yield a line for each cost outside projects; the service shows them to operators only."""
    for cause in dict.fromkeys(line["cause"] for line in lines):
        those = [line for line in lines if line["cause"] == cause]
        total = sum(Decimal(line["billed"]) for line in those)
        kinds = ", ".join(
            f"{printable_line(line['category'])} {money(line['billed'])}" for line in those
        )
        yield f"Belongs to no project: {money(total)} ({kinds}). {those[0]['why']}"


def _attempts(apart: list[Json]) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("attempt", "ledger", "billed", "because of"):
        shown.add_column(column, justify="right" if column in ("ledger", "billed") else "left")
    for line in apart:
        causes = ", ".join(f"{d['cause']} {money(d['amount'])}" for d in line["differences"])
        shown.add_row(line["id"], money(line["metered"]), money(line["billed"]), causes)
    return shown
