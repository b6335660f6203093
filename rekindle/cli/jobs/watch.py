"""`rekindle watch`: follow a job live on a terminal, or line by line elsewhere."""

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

    def show(self, news: JobUpdate) -> None:
        """Show the job and its new events."""
        ...

    def away(self, trouble: ServiceUnreachable) -> None:
        """Show that the service does not answer."""
        ...


def watch(
    cli: Cli,
    job: JobArgument,
    lines: Annotated[
        bool, typer.Option("--lines", help="Print one line per change, even on a terminal.")
    ] = False,
) -> int:
    """Watch a job until it ends. Ctrl-C stops watching; the job continues."""
    return follow(cli, resolve_job_id(cli.client, job), lines=lines)


def follow(cli: Cli, name: str, *, lines: bool = False) -> int:
    """Show updates until the job ends; return exit code 0 only if it succeeded."""
    feed = JobFeed(cli.client, name)
    status = None
    try:
        with _view(cli, lines=lines) as view:
            for news in feed.news(on_away=view.away):
                view.show(news)
                status = news.job.get("status")
    except KeyboardInterrupt:
        cli.note(
            f"\nStopped watching; {name} continues.\n"
            f"Watch again: rekindle watch {name}\nCancel the job: rekindle cancel {name}"
        )
        return ExitCode.INTERRUPTED
    return ExitCode.OK if status == "succeeded" else ExitCode.FAILED


@contextmanager
def _view(cli: Cli, *, lines: bool) -> Iterator[JobView]:
    from rekindle.cli.jobs.watch_lines import JsonView, LineView

    if cli.as_json:
        yield JsonView(cli.line)
    elif lines or not cli.out.is_terminal:
        yield LineView(cli.out, time.time)
    else:
        from rekindle.cli.jobs.watch_screen import screen

        with screen(cli.out, time.time) as shown:
            yield shown
