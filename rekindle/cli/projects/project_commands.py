"""`rekindle projects`, and running a command in every project. For operators."""

import sys
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer
from rich.text import Text

from rekindle.cli.command import Cli
from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.formats import local_time, printable_line
from rekindle.cli.job_lookup import list_items
from rekindle.cli.tables import new_table

Json = dict[str, Any]
PROJECTS = "/organization/projects"


def list_projects(
    cli: Cli,
    job: Annotated[
        str | None, typer.Option(metavar="ID", help="Show only the project of this job.")
    ] = None,
) -> None:
    """List all projects, newest first (operators only)."""
    listed = list_items(cli.client, PROJECTS, sys.maxsize, query={"job": job})
    if job is not None and not listed:
        raise CliError(
            f"No project has job {job!r}.",
            "Pass the full job id.",
            exit_code=ExitCode.NOT_FOUND,
            code="job_not_found",
        )
    cli.print_result({"object": "list", "data": listed, "has_more": False}, lambda: _table(listed))


def each_project(cli: Cli) -> Iterator[Json]:
    """Yield every project; the client acts in it until the next one."""
    for project in list_items(cli.client, PROJECTS, sys.maxsize):
        cli.client.select_project(project["id"])
        yield project


def refuse_project_option(cli: Cli, option: str | None) -> None:
    """Raise CliError if --all-projects is combined with an option for one project."""
    if conflict := "--project" if cli.options.project is not None else option:
        raise CliError(
            f"--all-projects and {conflict} cannot be combined.",
            "Leave one out.",
            exit_code=ExitCode.USAGE,
        )


def _table(listed: list[Json]) -> Iterable[Any]:
    table = new_table("name", "id", "since", no_wrap=("id",))
    for project in listed:
        table.add_row(
            Text(printable_line(project["name"])),
            project["id"],
            local_time(project["created_at"], day=True),
        )
    yield table
