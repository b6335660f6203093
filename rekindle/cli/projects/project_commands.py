"""`rekindle projects`, and running a command in every project. For operators."""

import sys
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from rekindle.cli.command import Cli
from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.formats import local_time, printable_line
from rekindle.cli.job_lookup import list_items

Json = dict[str, Any]
PROJECTS = "/organization/projects"


def projects(
    cli: Cli,
    job: Annotated[
        str | None, typer.Option(metavar="ID", help="Show only the project of this job.")
    ] = None,
) -> None:
    """List all projects, newest first (operators only)."""
    found = list_items(cli.client, PROJECTS, sys.maxsize, query={"job": job})
    if job is not None and not found:
        raise CliError(
            f"No project has job {job!r}.",
            "Pass the full job id.",
            exit_code=ExitCode.NOT_FOUND,
            code="job_not_found",
        )
    cli.show({"object": "list", "data": found, "has_more": False}, lambda: _table(found))


def in_each(cli: Cli) -> Iterator[Json]:
    """Yield every project; the client acts in it until the next one."""
    for one in list_items(cli.client, PROJECTS, sys.maxsize):
        cli.client.select_project(one["id"])
        yield one


def refuse_with(cli: Cli, other: str | None) -> None:
    """Raise CliError if --all-projects is combined with an option for one project."""
    if clash := "--project" if cli.asked.project is not None else other:
        raise CliError(
            f"--all-projects and {clash} cannot be combined.",
            "Leave one out.",
            exit_code=ExitCode.USAGE,
        )


def _table(found: list[Json]) -> Iterable[Any]:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("name", "id", "since"):
        table.add_column(column, no_wrap=column == "id", overflow="fold")
    for one in found:
        table.add_row(
            Text(printable_line(one["name"])), one["id"], local_time(one["created_at"], day=True)
        )
    yield table
