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
from rekindle.cli.jobs.job_commands import request_action
from rekindle.cli.projects import project_commands

Json = dict[str, Any]
_ID = re.compile(r"ftjob-[0-9a-z]+")
_ALREADY_ENDED = "invalid_job_state"  # the answer to pausing a job that has ended


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
class _Action:
    name: str
    outcome: str  # what happens to the job, for the output
    applies: Callable[[Json], bool]  # whether the action is still to be requested
    after: str  # note after the last job


def _can_pause(job: Json) -> bool:
    """Return whether a job can be paused; also one that waits for budget, as it could resume."""
    code = formats.object_member(job, "status_reason").get("code")
    return not formats.has_ended(job) and code not in (
        "cancelling",
        "pausing",
        "paused",
        "never_trained",
    )


def _can_resume(job: Json) -> bool:
    """Return whether a user or operator paused the job, not an exhausted budget."""
    code = formats.object_member(job, "status_reason").get("code")
    return job.get("phase") in ("pausing", "paused") and code != "budget_exhausted"


_PAUSE = _Action(
    name="pause",
    outcome="saves a checkpoint and pauses; continue it with: rekindle resume",
    applies=_can_pause,
    after="Machines are deleted once checkpoints are saved. New jobs are not paused.",
)
_RESUME = _Action(
    name="resume",
    outcome="resumes as soon as machines are available",
    applies=_can_resume,
    after="Each job resumes as soon as machines are available.",
)


def pause_jobs(cli: Cli, selection: JobSelection, job: JobOrAll = None) -> int | None:
    """Save a checkpoint and release the machines until `rekindle resume`.

    With --all, the exit code is 1 if a job could not be paused. Jobs submitted later still run.
    """
    return _request(cli, _PAUSE, selection, job)


def resume_jobs(
    cli: Cli,
    selection: JobSelection,
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
    return _request(cli, _RESUME, selection, job, only)


def _request(
    cli: Cli, action: _Action, selection: JobSelection, job: str | None, only: Path | None = None
) -> int | None:
    if selection.all_projects:
        project_commands.refuse_project_option(cli, "JOB" if job else None)
    if selection.everything is not (job is None) or (only is not None and job is not None):
        raise CliError(
            f"Specify one job or --all: rekindle {action.name} JOB, "
            f"or rekindle {action.name} --all.",
            exit_code=ExitCode.USAGE,
        )
    if job is None:
        return _request_all(cli, action, selection, None if only is None else _read_job_ids(only))
    request_action(cli, job, action.name, action.outcome)
    return None


def _read_job_ids(file: Path) -> frozenset[str]:
    """Return the job ids in saved output, text or JSON, of one or several runs."""
    if ids := frozenset(_ID.findall(file.read_text(errors="replace"))):
        return ids
    raise CliError(
        f"{file} contains no job id.",
        "Pass a file with the output of `rekindle pause --all`.",
        exit_code=ExitCode.USAGE,
        code="no_jobs",
    )


def _request_all(
    cli: Cli, action: _Action, selection: JobSelection, only: frozenset[str] | None
) -> int:
    selected = (
        _matching_jobs_of_all_projects(cli, action)
        if selection.all_projects
        else _matching_jobs(cli, action)
    )
    selected = [job for job in selected if only is None or job["id"] in only]
    if selected and not selection.yes:
        if not sys.stdin.isatty():
            raise CliError(
                "Not an interactive terminal; pass --yes to confirm.", exit_code=ExitCode.USAGE
            )
        _confirm(action, selected)
    results: list[Json] = []
    try:
        for job in selected:
            if selection.all_projects:
                cli.client.select_project(job["organization_id"])
            results.append(_request_one(cli, action, job))
            if not cli.as_json:
                cli.out.print(_result_line(action, results[-1]))
    except ServiceUnreachable:
        cli.print_note(
            f"{_summary(action, results)} Service unreachable; rerun for the other jobs."
        )
        raise
    failed = [result for result in results if result["result"] == "failed"]
    document = {"object": "list", "data": results, "has_more": False}
    cli.print_result(document, lambda: [_summary(action, results)])
    if results:
        cli.print_note(action.after)
    return ExitCode.FAILED if failed else ExitCode.OK


def _matching_jobs(cli: Cli, action: _Action) -> list[Json]:
    return [job for job in list_items(cli.client, JOBS, sys.maxsize) if action.applies(job)]


def _matching_jobs_of_all_projects(cli: Cli, action: _Action) -> list[Json]:
    """Return the matching jobs of every project, each with its project's name."""
    return [
        job | {"project": project["name"]}
        for project in project_commands.each_project(cli)
        for job in _matching_jobs(cli, action)
    ]


def _confirm(action: _Action, selected: list[Json]) -> None:
    count, projects = len(selected), len({job["organization_id"] for job in selected})
    where = f" of {formats.count(projects, 'project')}" if "project" in selected[0] else ""
    question = f"{action.name.capitalize()} {formats.count(count, 'job')}{where}?"
    if not typer.confirm(question, default=False, err=True):
        raise CliError(f"No confirmation; no job was asked to {action.name}.", code="not_confirmed")


def _request_one(cli: Cli, action: _Action, job: Json) -> Json:
    """Request the action for one job and return its result; raise ServiceUnreachable."""
    result = {"id": job["id"], "project": job.get("project"), "result": "requested", "why": None}
    try:
        cli.client.post(f"{JOBS}/{job['id']}/{action.name}")
    except ServiceUnreachable:
        raise
    except CliError as error:
        has_ended = action is _PAUSE and error.code == _ALREADY_ENDED
        result |= {"result": "ended" if has_ended else "failed", "why": error.message}
    return result


def _result_line(action: _Action, result: Json) -> str:
    where = f" of {formats.printable_line(result['project'])}" if result["project"] else ""
    request = f"asked to {action.name}"
    outcome = {
        "requested": request,
        "ended": "has already ended",
        "failed": f"could not be {request}",
    }[result["result"]]
    why = f": {result['why']}" if result["why"] else ""
    return f"{result['id']}{where}: {outcome}{why}"


def _summary(action: _Action, results: Iterable[Json]) -> str:
    counts = Counter(result["result"] for result in results)
    ended = f"; {counts['ended']:,} had already ended" if counts["ended"] else ""
    failed = f"; {counts['failed']:,} failed" if counts["failed"] else ""
    return f"{formats.count(counts['requested'], 'job')} asked to {action.name}{ended}{failed}."
