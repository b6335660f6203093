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
_MAX_FILTERED = 1000  # maximum number of jobs that a filter reads


@dataclass(frozen=True, kw_only=True)
class _JobPage:
    jobs: list[Json]
    status: str | None  # status of all jobs of the page; None: any
    after: str | None  # the oldest job that was read; None: there are no older ones

    @property
    def document(self) -> Json:
        has_more = self.after is not None
        return {"object": "list", "data": self.jobs, "has_more": has_more, "last_id": self.after}


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
        _list_all_projects(cli, limit, after, status)
        return
    page = _read_page(cli, limit, resolve_job_id(cli.client, after) if after else None, status)
    cli.print_result(page.document, lambda: _page_lines(page, cli.project_option))


def show_job(cli: Cli, job: JobArgument) -> None:
    """Show a job: status and reason, steps, cost and attempts."""
    name = resolve_job_id(cli.client, job)
    details = cli.client.get(f"{JOBS}/{name}")
    attempts = cli.client.get(f"{JOBS}/{name}/attempts")["data"]
    # The job already has a member `attempts` with counts.
    document = details | {"attempt_list": attempts}
    cli.print_result(document, lambda: views.job_details(details, attempts, time.time()))


def show_cost(cli: Cli, job: JobArgument) -> None:
    """Show what a job has cost, its forecast, and its savings compared to on-demand."""
    name = resolve_job_id(cli.client, job)
    cost = cli.client.get(f"{JOBS}/{name}/cost")
    attempts = cli.client.get(f"{JOBS}/{name}/attempts")["data"]
    cli.print_result(cost | {"attempts": attempts}, lambda: views.cost_details(cost, attempts))


def show_events(
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
    listed = list_items(cli.client, path, limit)[::-1]
    if not follow:
        document = {"object": "list", "data": listed, "has_more": len(listed) == limit}
        cli.print_result(document, lambda: (views.event_line(e, day=True) for e in listed))
        return
    _print_events(cli, listed)
    feed = JobFeed(cli.client, name, last_event=listed[-1]["id"] if listed else None)
    for update in feed.updates(on_outage=lambda e: cli.print_note(f"{e.message} Retrying.")):
        _print_events(cli, update.events)


def cancel_job(cli: Cli, job: JobArgument) -> None:
    """Cancel a job: delete its machines and keep its checkpoints."""
    request_action(cli, job, "cancel", "is being cancelled")


def request_action(cli: Cli, job: str, verb: str, outcome: str) -> None:
    """Request an action of a job and print the result."""
    name = resolve_job_id(cli.client, job)
    response = cli.client.post(f"{JOBS}/{name}/{verb}")
    cli.print_result(response, lambda: _action_lines(response, outcome, cli.project_option))


def _read_page(cli: Cli, limit: int, after: str | None, status: str | None) -> _JobPage:
    """Read a page; filter by status here, among the newest 1,000 jobs, as the API cannot."""
    max_jobs = limit + 1 if status is None else _MAX_FILTERED
    listed = list_items(cli.client, JOBS, max_jobs, after)
    matching = [job for job in listed if status in (None, formats.status(job))]
    if len(matching) > limit:
        return _JobPage(jobs=matching[:limit], status=status, after=matching[limit - 1]["id"])
    return _JobPage(
        jobs=matching, status=status, after=listed[-1]["id"] if len(listed) == max_jobs else None
    )


def _list_all_projects(cli: Cli, limit: int, after: str | None, status: str | None) -> None:
    project_commands.refuse_project_option(cli, "--after" if after else None)
    pages = [
        (project, _read_page(cli, limit, None, status))
        for project in project_commands.each_project(cli)
    ]
    data = [job | {"project": project["name"]} for project, page in pages for job in page.jobs]
    has_more = any(page.after for _, page in pages)
    document = {"object": "list", "data": data, "has_more": has_more}
    cli.print_result(document, lambda: _project_sections(pages))


def _project_sections(pages: list[tuple[Json, _JobPage]]) -> Iterable[Any]:
    sections = [(project, page) for project, page in pages if page.jobs or page.after]
    if not sections:
        yield "No matching jobs in any project."
    for project, page in sections:
        yield f"Project {formats.printable_line(project['name'])}"
        yield from _page_lines(page, f" --project {project['id']}")


def _page_lines(page: _JobPage, project_option: str) -> Iterable[Any]:
    only = f" --status {page.status}" if page.status else ""
    if page.jobs:
        yield views.jobs_table(page.jobs, time.time())
    elif page.status:
        scope = f" of the newest {_MAX_FILTERED:,}" if page.after else ""
        yield f"No job{scope} is {page.status}."
    else:
        yield "No jobs. Create one: rekindle submit FILE --model MODEL"
    if page.after:
        verb = "may be" if page.status else "are"
        yield f"There {verb} more: rekindle list{only} --after {page.after}{project_option}"


def _print_events(cli: Cli, events: Iterable[Json]) -> None:
    for event in events:
        if cli.as_json:
            cli.print_json(event)
        else:
            cli.out.print(views.event_line(event, day=True))


def _action_lines(job: Json, outcome: str, project_option: str) -> Iterable[Any]:
    if formats.has_ended(job):
        yield f"{job['id']} has already ended: {formats.phase(job).lower()}."
        return
    yield f"{job['id']} {outcome}."
    yield f"Next: rekindle watch {job['id']}{project_option}"
