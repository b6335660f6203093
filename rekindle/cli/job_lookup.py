"""Which job is meant: an id, the unique beginning of one, or `last`. And what Tab offers."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.cli.connection import Asked, connect
from rekindle.cli.errors import ExitCode, Trouble

if TYPE_CHECKING:
    from rekindle.cli.api_client import Client

JOBS = "/fine_tuning/jobs"
LAST = "last"
_PAGE = 100
_LENGTH_OF_ID = 32  # shorter ones are looked up as beginnings
_SECONDS_OF_TAB = 1.5


def complete_job(incomplete: str) -> list[tuple[str, str]]:
    """Jobs for the shell, with what they are; nothing where no service answers at once."""
    import httpx

    try:
        found = connect(Asked(), os.environ, Path.cwd())
        answer = httpx.get(
            f"{found.url}{JOBS}",
            params={"limit": 50},
            headers={"authorization": f"Bearer {found.key}"},
            timeout=_SECONDS_OF_TAB,
        )
        jobs = answer.raise_for_status().json()["data"]
    except (Trouble, httpx.HTTPError, ValueError, KeyError):
        return []
    offered = [(LAST, "the newest job"), *((j["id"], f"{j['status']} {j['model']}") for j in jobs)]
    return [(name, what) for name, what in offered if name.startswith(incomplete)]


_JOB_HELP = "Its id, the beginning of it, or `last` for the newest."
JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help=_JOB_HELP, autocompletion=complete_job)
]
JobOrAll = Annotated[
    str | None, typer.Argument(metavar="JOB", help=_JOB_HELP, autocompletion=complete_job)
]


def job_id(client: "Client", named: str) -> str:
    """The id that is meant, or Trouble when it is none's or more than one's."""
    if named == LAST:
        newest = client.get(JOBS, limit=1)["data"]
        if not newest:
            raise Trouble(
                "There are no jobs yet.",
                "Make one: rekindle submit FILE --model MODEL",
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
    client: "Client",
    path: str,
    most: int = 1000,
    after: str | None = None,
    query: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """The items of a list, page by page, at most so many; ``query`` filters them."""
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


def _unclear(named: str, matching: list[str]) -> Trouble:
    if not matching:
        return Trouble(
            f"No job's id begins with {named!r}.",
            "rekindle list shows them all.",
            exit_code=ExitCode.NOT_FOUND,
            code="job_not_found",
        )
    shown = ", ".join(matching[:5]) + (", ..." if len(matching) > 5 else "")
    return Trouble(
        f"{named!r} could be {len(matching)} jobs: {shown}.",
        "Give more of the id.",
        exit_code=ExitCode.USAGE,
        code="ambiguous_job",
    )
