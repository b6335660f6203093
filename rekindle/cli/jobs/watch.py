"""`rekindle watch`: a job live on a terminal, or one line a change anywhere else."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Protocol

import typer

from rekindle.cli.command import Cli
from rekindle.cli.errors import ExitCode, Unreachable
from rekindle.cli.job_lookup import JobArgument, job_id
from rekindle.cli.jobs.job_feed import Feed, News


class View(Protocol):
    """Shows what is new about a job."""

    def show(self, news: News) -> None:
        """The job as it is, and what happened."""
        ...

    def away(self, trouble: Unreachable) -> None:
        """The service does not answer just now."""
        ...


def watch(
    cli: Cli,
    job: JobArgument,
    lines: Annotated[
        bool, typer.Option("--lines", help="One line a change, on a terminal as well.")
    ] = False,
) -> int:
    """Watch a job until it is over. Ctrl-C ends the watching, not the job."""
    return follow(cli, job_id(cli.client, job), lines=lines)


def follow(cli: Cli, name: str, *, lines: bool = False) -> int:
    """The exit code: 0 only for a job that succeeded."""
    feed = Feed(cli.client, name)
    status = None
    try:
        with _view(cli, lines=lines) as view:
            for news in feed.news(on_away=view.away):
                view.show(news)
                status = news.job.get("status")
    except KeyboardInterrupt:
        cli.note(
            f"\nStopped watching; {name} goes on by itself.\n"
            f"Watch it again: rekindle watch {name}\nEnd it: rekindle cancel {name}"
        )
        return ExitCode.INTERRUPTED
    return ExitCode.OK if status == "succeeded" else ExitCode.FAILED


@contextmanager
def _view(cli: Cli, *, lines: bool) -> Iterator[View]:
    from rekindle.cli.jobs.watch_lines import JsonLines, Lines

    if cli.as_json:
        yield JsonLines(cli.line)
    elif lines or not cli.out.is_terminal:
        yield Lines(cli.out, time.time)
    else:
        from rekindle.cli.jobs.watch_screen import screen

        with screen(cli.out, time.time) as shown:
            yield shown
