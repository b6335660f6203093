"""Resolve a job argument (id, unique prefix, or `last`), list pages, and complete job ids."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.cli.connection import ConnectionOptions, connect
from rekindle.cli.errors import CliError, ExitCode

if TYPE_CHECKING:
    from rekindle.cli.api_client import ApiClient

JOBS = "/fine_tuning/jobs"
LAST = "last"
_PAGE = 100
_LENGTH_OF_ID = 32  # shorter ones are looked up as prefixes
_SECONDS_OF_TAB = 1.5


def complete_job(incomplete: str) -> list[tuple[str, str]]:
    """Return completions of a job argument; none if the service does not answer in 1.5 s."""
    import httpx

    try:
        found = connect(ConnectionOptions(), os.environ, Path.cwd())
        answer = httpx.get(
            f"{found.url}{JOBS}",
            params={"limit": 50},
            headers={"authorization": f"Bearer {found.key}"},
            timeout=_SECONDS_OF_TAB,
        )
        jobs = answer.raise_for_status().json()["data"]
    except (CliError, httpx.HTTPError, ValueError, KeyError):
        return []
    offered = [(LAST, "newest job"), *((j["id"], f"{j['status']} {j['model']}") for j in jobs)]
    return [(name, what) for name, what in offered if name.startswith(incomplete)]


_JOB_HELP = "Job id, a unique prefix of it, or `last` for the newest job."
JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help=_JOB_HELP, autocompletion=complete_job)
]
JobOrAll = Annotated[
    str | None, typer.Argument(metavar="JOB", help=_JOB_HELP, autocompletion=complete_job)
]


def job_id(client: "ApiClient", named: str) -> str:
    """Return the full job id; raise CliError if no job or several jobs match."""
    if named == LAST:
        newest = client.get(JOBS, limit=1)["data"]
        if not newest:
            raise CliError(
                "No jobs exist yet.",
                "Create one: rekindle submit FILE --model MODEL",
                exit_code=ExitCode.NOT_FOUND,
                code="no_jobs",
            )
        return str(newest[0]["id"])
    if len(named) >= _LENGTH_OF_ID:
        return named
    matching = [job["id"] for job in pages(client, JOBS) if _is_meant(job["id"], named)]
    if named in matching or len(matching) == 1:
        return named if named in matching else str(matching[0])
    raise _unclear(named, matching)


def pages(
    client: "ApiClient",
    path: str,
    most: int = 1000,
    after: str | None = None,
    query: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Return at most ``most`` items of a paginated list; ``query`` filters them."""
    found: list[dict[str, Any]] = []
    while True:
        limit = min(_PAGE, most - len(found))
        answer = client.get(path, limit=limit, after=after, **(query or {}))
        found += answer["data"]
        if not answer.get("has_more") or not answer["data"] or len(found) >= most:
            return found
        after = answer["data"][-1]["id"]


def _is_meant(job: str, named: str) -> bool:
    return job.startswith(named) or job.partition("-")[2].startswith(named)


def _unclear(named: str, matching: list[str]) -> CliError:
    if not matching:
        return CliError(
            f"No job id begins with {named!r}.",
            "List all jobs: rekindle list --limit 1000",
            exit_code=ExitCode.NOT_FOUND,
            code="job_not_found",
        )
    shown = ", ".join(matching[:5]) + (", ..." if len(matching) > 5 else "")
    return CliError(
        f"{named!r} matches {len(matching)} jobs: {shown}.",
        "Pass a longer prefix of the id.",
        exit_code=ExitCode.USAGE,
        code="ambiguous_job",
    )
