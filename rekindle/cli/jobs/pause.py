"""`rekindle pause` and `resume` for one job, all jobs of a project, or all projects.

A repeat skips jobs that are already pausing or resumed, so an interrupted command can be rerun.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from rekindle.cli import formats
from rekindle.cli.command import Cli
from rekindle.cli.errors import CliError, ExitCode, ServiceUnreachable
from rekindle.cli.job_lookup import JOBS, JobOrAll, list_items
from rekindle.cli.jobs.job_commands import wish
from rekindle.cli.projects import project_commands

Json = dict[str, Any]
_ID = re.compile(r"ftjob-[0-9a-z]+")
_OVER_MEANWHILE = "invalid_job_state"  # the answer to pausing a job that has ended


@dataclass(frozen=True)
class JobSelection:
    """Options that select more than one job."""

    everything: Annotated[
        bool, typer.Option("--all", help="Select all jobs of the project instead of one.")
    ] = False
    all_projects: Annotated[
        bool,
        typer.Option(
            "--all-projects", help="With --all: select jobs of all projects (operators only)."
        ),
    ] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --all: skip the confirmation.")] = (
        False
    )


@dataclass(frozen=True, kw_only=True)
class _Verb:
    name: str
    of_one: str  # what happens to the job, for the output
    fits: Callable[[Json], bool]  # whether the action is still to be requested
    after: str  # note after the last job


def _may_pause(job: Json) -> bool:
    """Return whether a job can be paused; also one that waits for budget, as it could resume."""
    code = formats.object_member(job, "status_reason").get("code")
    return not formats.has_ended(job) and code not in (
        "cancelling",
        "pausing",
        "paused",
        "never_trained",
    )


def _may_resume(job: Json) -> bool:
    """Return whether a user or operator paused the job, not an exhausted budget."""
    code = formats.object_member(job, "status_reason").get("code")
    return job.get("phase") in ("pausing", "paused") and code != "budget_exhausted"


_PAUSE = _Verb(
    name="pause",
    of_one="saves a checkpoint and pauses; continue it with: rekindle resume",
    fits=_may_pause,
    after="Machines are deleted once checkpoints are saved. New jobs are not paused.",
)
_RESUME = _Verb(
    name="resume",
    of_one="resumes as soon as machines are available",
    fits=_may_resume,
    after="Each job resumes as soon as machines are available.",
)


def pause(cli: Cli, many: JobSelection, job: JobOrAll = None) -> int | None:
    """Save a checkpoint and release the machines until `rekindle resume`.

    With --all, the exit code is 1 if a job could not be paused. Jobs submitted later still run.
    """
    return _asked(cli, _PAUSE, many, job)


def resume(
    cli: Cli,
    many: JobSelection,
    job: JobOrAll = None,
    only: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --all: file with saved output of `pause --all`; resume only those jobs.",
        ),
    ] = None,
) -> int | None:
    """Resume a paused job from its last checkpoint.

    With --all, resume every paused job; the exit code is 1 if a job could not be resumed.
    """
    return _asked(cli, _RESUME, many, job, only)


def _asked(
    cli: Cli, verb: _Verb, many: JobSelection, job: str | None, only: Path | None = None
) -> int | None:
    if many.all_projects:
        project_commands.refuse_with(cli, "JOB" if job else None)
    if many.everything is not (job is None) or (only is not None and job is not None):
        raise CliError(
            f"Specify one job or --all: rekindle {verb.name} JOB, or rekindle {verb.name} --all.",
            exit_code=ExitCode.USAGE,
        )
    if job is None:
        return _all(cli, verb, many, None if only is None else _named_in(only))
    wish(cli, job, verb.name, verb.of_one)
    return None


def _named_in(file: Path) -> frozenset[str]:
    """Return the job ids in saved output, text or JSON, of one or several runs."""
    if found := frozenset(_ID.findall(file.read_text(errors="replace"))):
        return found
    raise CliError(
        f"{file} contains no job id.",
        "Pass a file with the output of `rekindle pause --all`.",
        exit_code=ExitCode.USAGE,
        code="no_jobs",
    )


def _all(cli: Cli, verb: _Verb, many: JobSelection, only: frozenset[str] | None) -> int:
    chosen = _fitting_of_all(cli, verb) if many.all_projects else _fitting(cli, verb)
    chosen = [job for job in chosen if only is None or job["id"] in only]
    if chosen and not many.yes:
        if not sys.stdin.isatty():
            raise CliError(
                "Not an interactive terminal; pass --yes to confirm.", exit_code=ExitCode.USAGE
            )
        _confirm(verb, chosen)
    done: list[Json] = []
    try:
        for job in chosen:
            if many.all_projects:
                cli.client.select_project(job["organization_id"])
            done.append(_one(cli, verb, job))
            if not cli.as_json:
                cli.out.print(_line(verb, done[-1]))
    except ServiceUnreachable:
        cli.note(f"{_summary(verb, done)} Service unreachable; rerun for the other jobs.")
        raise
    failed = [one for one in done if one["result"] == "failed"]
    document = {"object": "list", "data": done, "has_more": False}
    cli.show(document, lambda: [_summary(verb, done)])
    if done:
        cli.note(verb.after)
    return ExitCode.FAILED if failed else ExitCode.OK


def _fitting(cli: Cli, verb: _Verb) -> list[Json]:
    return [job for job in list_items(cli.client, JOBS, sys.maxsize) if verb.fits(job)]


def _fitting_of_all(cli: Cli, verb: _Verb) -> list[Json]:
    """Return the matching jobs of every project, each with its project's name."""
    return [
        job | {"project": one["name"]}
        for one in project_commands.in_each(cli)
        for job in _fitting(cli, verb)
    ]


def _confirm(verb: _Verb, chosen: list[Json]) -> None:
    count, of = len(chosen), len({job["organization_id"] for job in chosen})
    where = f" of {formats.count(of, 'project')}" if "project" in chosen[0] else ""
    question = f"{verb.name.capitalize()} {formats.count(count, 'job')}{where}?"
    if not typer.confirm(question, default=False, err=True):
        raise CliError(f"No confirmation; no job was asked to {verb.name}.", code="not_confirmed")


def _one(cli: Cli, verb: _Verb, job: Json) -> Json:
    """Request the action for one job and return its result; raise ServiceUnreachable."""
    told = {"id": job["id"], "project": job.get("project"), "result": "told", "why": None}
    try:
        cli.client.post(f"{JOBS}/{job['id']}/{verb.name}")
    except ServiceUnreachable:
        raise
    except CliError as trouble:
        is_over = verb is _PAUSE and trouble.code == _OVER_MEANWHILE
        told |= {"result": "over" if is_over else "failed", "why": trouble.message}
    return told


def _line(verb: _Verb, one: Json) -> str:
    where = f" of {formats.printable_line(one['project'])}" if one["project"] else ""
    told = f"asked to {verb.name}"
    what = {"told": told, "over": "has already ended", "failed": f"could not be {told}"}[
        one["result"]
    ]
    why = f": {one['why']}" if one["why"] else ""
    return f"{one['id']}{where}: {what}{why}"


def _summary(verb: _Verb, done: Iterable[Json]) -> str:
    counts = Counter(one["result"] for one in done)
    over = f"; {counts['over']:,} had already ended" if counts["over"] else ""
    failed = f"; {counts['failed']:,} failed" if counts["failed"] else ""
    return f"{formats.count(counts['told'], 'job')} asked to {verb.name}{over}{failed}."
