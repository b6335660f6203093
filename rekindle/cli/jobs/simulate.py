"""`rekindle simulate`: cost and duration of a job in a simulated Spot market."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.cli.command import Cli
from rekindle.cli.formats import duration, money
from rekindle.cli.job_lookup import JOBS, JobArgument, resolve_job_id
from rekindle.cli.tables import new_table

if TYPE_CHECKING:
    from rich.table import Table

Json = dict[str, Any]
_NAMES = {"rekindle": "with the deadline", "spot_only": "Spot alone", "on_demand": "on demand"}


def simulate_job(
    cli: Cli,
    job: JobArgument,
    deadline: Annotated[
        float | None,
        typer.Option(
            metavar="HOURS",
            help="Deadline of the simulated jobs in hours; default: the job's own deadline.",
        ),
    ] = None,
    lives: Annotated[
        int,
        typer.Option(
            min=1, max=100, help="Number of simulated runs; more give narrower estimates."
        ),
    ] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the simulated Spot market.")] = 1,
) -> None:
    """Simulate the job many times in a Spot market model. Buys and changes nothing."""
    name = resolve_job_id(cli.client, job)
    request: Json = {"lives": lives, "seed": seed}
    if deadline is not None:
        request["deadline_hours"] = deadline
    simulation = cli.client.post(f"{JOBS}/{name}/simulation", request)
    cli.print_result(simulation, lambda: [strategies_table(simulation)])


def strategies_table(simulation: Mapping[str, Any]) -> "Table":
    """Return a table with one row per purchasing strategy."""
    limit = simulation.get("deadline_hours")
    within = "" if limit is None else f", a deadline after {duration(limit * 3600)}"
    numbers = ("cost p50", "p90", "time p50", "p90", "evictions", "on demand", "in time")
    title = f"{simulation['lives']} simulated runs{within}"
    table = new_table("strategy", *numbers, right=numbers, title=title)
    for strategy in simulation["ways"]:
        table.add_row(*_cells(strategy))
    return table


def _cells(strategy: Mapping[str, Any]) -> list[str]:
    cost, hours = strategy["dollars"], strategy["hours"]
    in_time_pct = strategy["in_time_pct"]
    return [
        _NAMES.get(strategy["name"], strategy["name"]),
        money(cost["p50"]),
        money(cost["p90"]),
        _hours(hours["p50"]),
        _hours(hours["p90"]),
        f"{strategy['evictions']['p50']:g}",
        f"{strategy['on_demand_pct']:.0f} %",
        "-" if in_time_pct is None else f"{in_time_pct:.0f} %",
    ]


def _hours(hours: float | None) -> str:
    return "never" if hours is None else duration(hours * 3600)
