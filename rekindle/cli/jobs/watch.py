"""`rekindle watch`: follow a job live on a terminal, or line by line without one."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Protocol

import typer

from rekindle.cli.command import Cli
from rekindle.cli.errors import ExitCode, ServiceUnreachable
from rekindle.cli.job_lookup import JobArgument, resolve_job_id
from rekindle.cli.jobs.job_feed import JobFeed, JobUpdate


class JobView(Protocol):
    """Shows updates of a job."""

    def show_update(self, update: JobUpdate) -> None:
        """Show the job and its new events."""
        ...

    def show_outage(self, error: ServiceUnreachable) -> None:
        """Show that the service does not answer."""
        ...


def watch_job(
    cli: Cli,
    job: JobArgument,
    lines: Annotated[
        bool, typer.Option("--lines", help="Print one line per change, even on a terminal.")
    ] = False,
) -> int:
    """Watch a job until it ends. Ctrl-C stops watching; the job continues."""
    return follow_job(cli, resolve_job_id(cli.client, job), lines=lines)


def follow_job(cli: Cli, name: str, *, lines: bool = False) -> int:
    """Show updates until the job ends; return exit code 0 only if it succeeded."""
    feed = JobFeed(cli.client, name)
    status = None
    try:
        with _open_view(cli, lines=lines) as view:
            for update in feed.updates(on_outage=view.show_outage):
                view.show_update(update)
                status = update.job.get("status")
    except KeyboardInterrupt:
        cli.print_note(
            f"\nStopped watching; {name} continues.\n"
            f"Watch again: rekindle watch {name}\nCancel the job: rekindle cancel {name}"
        )
        return ExitCode.INTERRUPTED
    return ExitCode.OK if status == "succeeded" else ExitCode.FAILED


@contextmanager
def _open_view(cli: Cli, *, lines: bool) -> Iterator[JobView]:
    from rekindle.cli.jobs.watch_lines import JsonView, LineView

    if cli.as_json:
        yield JsonView(cli.print_json)
    elif lines or not cli.out.is_terminal:
        yield LineView(cli.out, time.time)
    else:
        from rekindle.cli.jobs.watch_screen import open_screen

        with open_screen(cli.out, time.time) as view:
            yield view
