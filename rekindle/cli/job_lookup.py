"""Resolve a job argument (id, unique prefix, or `last`), list pages, and complete job ids."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.cli.connection import ConnectionOptions, resolve_connection
from rekindle.cli.errors import CliError, ExitCode

if TYPE_CHECKING:
    from rekindle.cli.api_client import ApiClient

JOBS = "/fine_tuning/jobs"
LAST = "last"
_PAGE = 100
_ID_LENGTH = 32  # shorter ones are looked up as prefixes
_COMPLETION_SECONDS = 1.5


def complete_job(incomplete: str) -> list[tuple[str, str]]:
    """Return completions of a job argument; none if the service does not answer in 1.5 s."""
    import httpx

    try:
        connection = resolve_connection(ConnectionOptions(), os.environ, Path.cwd())
        response = httpx.get(
            f"{connection.url}{JOBS}",
            params={"limit": 50},
            headers={"authorization": f"Bearer {connection.key}"},
            timeout=_COMPLETION_SECONDS,
        )
        jobs = response.raise_for_status().json()["data"]
    except (CliError, httpx.HTTPError, ValueError, KeyError):
        return []
    candidates = [(LAST, "newest job"), *((j["id"], f"{j['status']} {j['model']}") for j in jobs)]
    return [(name, description) for name, description in candidates if name.startswith(incomplete)]


_JOB_HELP = "Job id, a unique prefix of it, or `last` for the newest job."
JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help=_JOB_HELP, autocompletion=complete_job)
]
JobOrAll = Annotated[
    str | None, typer.Argument(metavar="JOB", help=_JOB_HELP, autocompletion=complete_job)
]


def resolve_job_id(client: "ApiClient", name: str) -> str:
    """Return the full job id; raise CliError if no job or several jobs match."""
    if name == LAST:
        newest = client.get(JOBS, limit=1)["data"]
        if not newest:
            raise CliError(
                "No jobs exist yet.",
                "Create one: rekindle submit FILE --model MODEL",
                exit_code=ExitCode.NOT_FOUND,
                code="no_jobs",
            )
        return str(newest[0]["id"])
    if len(name) >= _ID_LENGTH:
        return name
    matching = [job["id"] for job in list_items(client, JOBS) if _matches_prefix(job["id"], name)]
    if name in matching or len(matching) == 1:
        return name if name in matching else str(matching[0])
    raise _lookup_error(name, matching)


def list_items(
    client: "ApiClient",
    path: str,
    max_items: int = 1000,
    after: str | None = None,
    query: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Return at most ``max_items`` items of a paginated list; ``query`` filters them."""
    items: list[dict[str, Any]] = []
    while True:
        limit = min(_PAGE, max_items - len(items))
        page = client.get(path, limit=limit, after=after, **(query or {}))
        items += page["data"]
        if not page.get("has_more") or not page["data"] or len(items) >= max_items:
            return items
        after = page["data"][-1]["id"]


def _matches_prefix(job: str, prefix: str) -> bool:
    return job.startswith(prefix) or job.partition("-")[2].startswith(prefix)


def _lookup_error(prefix: str, matching: list[str]) -> CliError:
    if not matching:
        return CliError(
            f"No job id begins with {prefix!r}.",
            "List all jobs: rekindle list --limit 1000",
            exit_code=ExitCode.NOT_FOUND,
            code="job_not_found",
        )
    listed = ", ".join(matching[:5]) + (", ..." if len(matching) > 5 else "")
    return CliError(
        f"{prefix!r} matches {len(matching)} jobs: {listed}.",
        "Pass a longer prefix of the id.",
        exit_code=ExitCode.USAGE,
        code="ambiguous_job",
    )
