"""`rekindle costs`: a project's cost and savings by day, and a comparison with Azure's bill."""

import time
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.cli.command import Cli
from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.formats import money, printable_line
from rekindle.cli.projects.savings import project_savings_lines, read_all_projects
from rekindle.cli.tables import new_table

if TYPE_CHECKING:
    from rich.table import Table

Json = dict[str, Any]
COSTS = "/organization/costs"


def show_costs(
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
        savings = read_all_projects(cli, days)
        cli.print_result(savings, lambda: project_savings_lines(savings))
        return
    if reconcile:
        comparison = cli.client.get(f"{COSTS}/reconciliation", days=days)
        cli.print_result(comparison, lambda: comparison_lines(comparison))
        return
    costs = cli.client.get(COSTS, days=days)
    cli.print_result(costs, lambda: daily_cost_lines(costs))


def daily_cost_lines(costs: Mapping[str, Any]) -> Iterable[Any]:
    """Yield a table with one row per day, and the totals."""
    amounts = ("machines", "storage", "on demand", "saved")
    table = new_table("day", *amounts, right=amounts)
    for bucket in costs["data"]:
        lines = {r["line_item"]: r["amount"]["value"] for r in bucket["results"]}
        table.add_row(
            time.strftime("%Y-%m-%d", time.gmtime(bucket["start_time"])),
            *(money(f"{lines.get(name, 0):.2f}") for name in ("machines", "storage")),
            *(money(bucket[name]) for name in ("on_demand_equivalent", "saved")),
        )
    yield table
    yield (
        f"{money(costs['total'])} in total; machines saved {money(costs['saved'])} compared to "
        f"on-demand ({costs['saved_percent']:g} %)."
    )


def comparison_lines(comparison: Mapping[str, Any]) -> Iterable[Any]:
    """Yield the totals, a line for each difference, and the attempts that differ most."""
    if comparison["told_until"] is None:
        yield "Azure has not published a bill yet; it is a day late. Try again tomorrow."
    else:
        days = f"{comparison['since']} to {comparison['until']}"
        yield f"{days}; Azure's bill is complete up to {comparison['told_until']}."
    if comparison["trouble"]:
        at = time.strftime("%Y-%m-%d %H:%M", time.gmtime(comparison["trouble"]["at"]))
        yield f"At {at} UTC Azure did not answer: {comparison['trouble']['message']}"
    totals = comparison["whole"]
    yield f"Rekindle's ledger {money(totals['metered'])}, Azure's bill {money(totals['billed'])}."
    yield from (f"  {difference['why']}" for difference in totals["differences"])
    yield from _unassigned_lines(comparison.get("of_nobody") or [])
    differing = [line for line in comparison["attempts"] if line["differences"]]
    if differing:
        yield _attempts_table(differing)
    if comparison["has_more"]:
        yield f"Showing the {len(comparison['attempts'])} attempts with the largest differences."


def _unassigned_lines(lines: list[Json]) -> Iterable[str]:
    """Yield a line for each cost outside projects; the service shows them to operators only."""
    for cause in dict.fromkeys(line["cause"] for line in lines):
        matching = [line for line in lines if line["cause"] == cause]
        total = sum(Decimal(line["billed"]) for line in matching)
        kinds = ", ".join(
            f"{printable_line(line['category'])} {money(line['billed'])}" for line in matching
        )
        yield f"Belongs to no project: {money(total)} ({kinds}). {matching[0]['why']}"


def _attempts_table(differing: list[Json]) -> "Table":
    table = new_table("attempt", "ledger", "billed", "because of", right=("ledger", "billed"))
    for line in differing:
        causes = ", ".join(f"{d['cause']} {money(d['amount'])}" for d in line["differences"])
        table.add_row(line["id"], money(line["metered"]), money(line["billed"]), causes)
    return table
