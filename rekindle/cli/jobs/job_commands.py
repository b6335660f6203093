"""`rekindle list`, `show`, `cost`, `events` and `cancel`."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from rekindle.cli import formats
from rekindle.cli.command import Cli
from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.job_lookup import JOBS, JobArgument, list_items, resolve_job_id
from rekindle.cli.jobs import views
from rekindle.cli.jobs.job_feed import JobFeed
from rekindle.cli.projects import project_commands

Json = dict[str, Any]
_STATUSES = {
    "validating_files",
    "queued",
    "running",
    "paused",
    "succeeded",
    "failed",
    "cancelled",
}
_LOOKED_THROUGH = 1000  # maximum number of jobs that a filter reads


@dataclass(frozen=True, kw_only=True)
class _Page:
    jobs: list[Json]
    status: str | None  # status of all jobs of the page; None: any
    after: str | None  # the oldest job that was read; None: there are no older ones

    @property
    def document(self) -> Json:
        more = self.after is not None
        return {"object": "list", "data": self.jobs, "has_more": more, "last_id": self.after}


def list_jobs(
    cli: Cli,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=1000, help="Maximum number of jobs.")
    ] = 20,
    after: Annotated[
        str | None, typer.Option(metavar="JOB", help="Show only jobs created before this one.")
    ] = None,
    status: Annotated[
        str | None,
        typer.Option(
            metavar="STATUS",
            help=f"Show only jobs with this status: {', '.join(sorted(_STATUSES))}.",
        ),
    ] = None,
    all_projects: Annotated[
        bool, typer.Option("--all-projects", help="Show jobs of all projects (operators only).")
    ] = False,
) -> None:
    """List your jobs, newest first."""
    if status is not None and status not in _STATUSES:
        raise CliError(
            f"{status!r} is not a job status.",
            f"Choose one of: {', '.join(sorted(_STATUSES))}.",
            exit_code=ExitCode.USAGE,
            code="unknown_status",
        )
    if all_projects:
        _list_all(cli, limit, after, status)
        return
    page = _page(cli, limit, resolve_job_id(cli.client, after) if after else None, status)
    cli.show(page.document, lambda: _listed(page, cli.project_option))


def show(cli: Cli, job: JobArgument) -> None:
    """Show a job: status and reason, steps, cost and attempts."""
    name = resolve_job_id(cli.client, job)
    shown = cli.client.get(f"{JOBS}/{name}")
    tried = cli.client.get(f"{JOBS}/{name}/attempts")["data"]
    # The job already has a member `attempts` with counts.
    document = shown | {"attempt_list": tried}
    cli.show(document, lambda: views.job(shown, tried, time.time()))


def cost(cli: Cli, job: JobArgument) -> None:
    """Show what a job has cost, its forecast, and its savings compared to on-demand."""
    name = resolve_job_id(cli.client, job)
    bill = cli.client.get(f"{JOBS}/{name}/cost")
    tried = cli.client.get(f"{JOBS}/{name}/attempts")["data"]
    cli.show(bill | {"attempts": tried}, lambda: views.cost(bill, tried))


def events(
    cli: Cli,
    job: JobArgument,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", "-n", min=1, max=1000, help="Maximum number of events, newest first."
        ),
    ] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new events until the job ends.")
    ] = False,
) -> None:
    """Show a job's events, oldest first."""
    name = resolve_job_id(cli.client, job)
    path = f"{JOBS}/{name}/events"
    found = list_items(cli.client, path, limit)[::-1]
    if not follow:
        document = {"object": "list", "data": found, "has_more": len(found) == limit}
        cli.show(document, lambda: (views.event_line(e, day=True) for e in found))
        return
    _print_events(cli, found)
    feed = JobFeed(cli.client, name, last_event=found[-1]["id"] if found else None)
    for news in feed.news(on_away=lambda trouble: cli.note(f"{trouble.message} Retrying.")):
        _print_events(cli, news.events)


def cancel(cli: Cli, job: JobArgument) -> None:
    """Cancel a job: delete its machines and keep its checkpoints."""
    wish(cli, job, "cancel", "is being cancelled")


def wish(cli: Cli, job: str, verb: str, said: str) -> None:
    """Request an action of a job and print the result."""
    name = resolve_job_id(cli.client, job)
    shown = cli.client.post(f"{JOBS}/{name}/{verb}")
    cli.show(shown, lambda: _granted(shown, said, cli.project_option))


def _page(cli: Cli, limit: int, after: str | None, status: str | None) -> _Page:
    """Read a page; filter by status here, among the newest 1,000 jobs, as the API cannot."""
    most = limit + 1 if status is None else _LOOKED_THROUGH
    found = list_items(cli.client, JOBS, most, after)
    fitting = [job for job in found if status in (None, formats.status(job))]
    if len(fitting) > limit:
        return _Page(jobs=fitting[:limit], status=status, after=fitting[limit - 1]["id"])
    return _Page(jobs=fitting, status=status, after=found[-1]["id"] if len(found) == most else None)


def _list_all(cli: Cli, limit: int, after: str | None, status: str | None) -> None:
    project_commands.refuse_with(cli, "--after" if after else None)
    found = [(one, _page(cli, limit, None, status)) for one in project_commands.in_each(cli)]
    data = [job | {"project": one["name"]} for one, page in found for job in page.jobs]
    more = any(page.after for _, page in found)
    document = {"object": "list", "data": data, "has_more": more}
    cli.show(document, lambda: _by_project(found))


def _by_project(found: list[tuple[Json, _Page]]) -> Iterable[Any]:
    told = [(one, page) for one, page in found if page.jobs or page.after]
    if not told:
        yield "No matching jobs in any project."
    for one, page in told:
        yield f"Project {formats.printable_line(one['name'])}"
        yield from _listed(page, f" --project {one['id']}")


def _listed(page: _Page, project_option: str) -> Iterable[Any]:
    only = f" --status {page.status}" if page.status else ""
    if page.jobs:
        yield views.jobs_table(page.jobs, time.time())
    elif page.status:
        through = f" of the newest {_LOOKED_THROUGH:,}" if page.after else ""
        yield f"No job{through} is {page.status}."
    else:
        yield "No jobs. Create one: rekindle submit FILE --model MODEL"
    if page.after:
        are = "may be" if page.status else "are"
        yield f"There {are} more: rekindle list{only} --after {page.after}{project_option}"


def _print_events(cli: Cli, found: Iterable[Json]) -> None:
    for event in found:
        if cli.as_json:
            cli.line(event)
        else:
            cli.out.print(views.event_line(event, day=True))


def _granted(shown: Json, said: str, project_option: str) -> Iterable[Any]:
    if formats.has_ended(shown):
        yield f"{shown['id']} has already ended: {formats.phase(shown).lower()}."
        return
    yield f"{shown['id']} {said}."
    yield f"Next: rekindle watch {shown['id']}{project_option}"
