"""`rekindle pause` and `resume`: of one job, of all of a project, or for operators of every one.

Done again, it asks only for what is still to be asked for, so whatever broke off can be repeated.
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
from rekindle.cli.errors import ExitCode, Trouble, Unreachable
from rekindle.cli.job_lookup import JOBS, JobOrAll, pages
from rekindle.cli.jobs.job_commands import wish
from rekindle.cli.projects import project_commands

Json = dict[str, Any]
_ID = re.compile(r"ftjob-[0-9a-z]+")
_OVER_MEANWHILE = "invalid_job_state"  # what is paused and cannot be is over


@dataclass(frozen=True)
class Many:
    """Options of what is asked of more than one job."""

    everything: Annotated[
        bool, typer.Option("--all", help="All jobs of the project, instead of one.")
    ] = False
    all_projects: Annotated[
        bool, typer.Option("--all-projects", help="With --all: of every project. For operators.")
    ] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --all: do not ask first.")] = False


@dataclass(frozen=True, kw_only=True)
class _Verb:
    name: str
    of_one: str  # what a job does then
    fits: Callable[[Json], bool]  # it is still to be asked for
    after: str  # what to know once all were told


def _may_pause(job: Json) -> bool:
    """Also one without money: it would come back once there is some."""
    code = formats.part(job, "status_reason").get("code")
    return not formats.is_over(job) and code not in (
        "cancelling",
        "pausing",
        "paused",
        "never_trained",
    )


def _may_resume(job: Json) -> bool:
    """Not one that waits for money: nobody has paused it."""
    code = formats.part(job, "status_reason").get("code")
    return job.get("phase") in ("pausing", "paused") and code != "budget_exhausted"


_PAUSE = _Verb(
    name="pause",
    of_one="saves a checkpoint and pauses; rekindle resume takes it up again",
    fits=_may_pause,
    after="Machines go once checkpoints are saved. Jobs submitted from now on run: say it again.",
)
_RESUME = _Verb(
    name="resume",
    of_one="goes on as soon as there are machines",
    fits=_may_resume,
    after="Each goes on as soon as there are machines for it.",
)


def pause(cli: Cli, many: Many, job: JobOrAll = None) -> int | None:
    """Save a checkpoint and give the machines back, until `rekindle resume`.

    With --all, exit code 1 when some could not be paused. Jobs that are submitted later run.
    """
    return _asked(cli, _PAUSE, many, job)


def resume(
    cli: Cli,
    many: Many,
    job: JobOrAll = None,
    only: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --all: only what `pause --all` printed, kept here."
        ),
    ] = None,
) -> int | None:
    """Take up a paused job where it was.

    With --all every one that is paused, whoever has paused it; exit code 1 when some could not be.
    """
    return _asked(cli, _RESUME, many, job, only)


def _asked(
    cli: Cli, verb: _Verb, many: Many, job: str | None, only: Path | None = None
) -> int | None:
    if many.all_projects:
        project_commands.refuse_with(cli, "JOB" if job else None)
    if many.everything is not (job is None) or (only is not None and job is not None):
        raise Trouble(
            f"One job or all of them? rekindle {verb.name} JOB, or rekindle {verb.name} --all.",
            exit_code=ExitCode.USAGE,
        )
    if job is None:
        return _all(cli, verb, many, None if only is None else _named_in(only))
    wish(cli, job, verb.name, verb.of_one)
    return None


def _named_in(file: Path) -> frozenset[str]:
    """The jobs in what was printed, be it lines or JSON, of one run or of several."""
    if found := frozenset(_ID.findall(file.read_text(errors="replace"))):
        return found
    raise Trouble(
        f"{file} names no job.",
        "Give what `rekindle pause --all` printed.",
        exit_code=ExitCode.USAGE,
        code="no_jobs",
    )


def _all(cli: Cli, verb: _Verb, many: Many, only: frozenset[str] | None) -> int:
    chosen = _fitting_of_all(cli, verb) if many.all_projects else _fitting(cli, verb)
    chosen = [job for job in chosen if only is None or job["id"] in only]
    if chosen and not many.yes:
        if not sys.stdin.isatty():
            raise Trouble("Nobody is there to be asked: say --yes.", exit_code=ExitCode.USAGE)
        _confirm(verb, chosen)
    done: list[Json] = []
    try:
        for job in chosen:
            if many.all_projects:
                cli.client.act_in(job["organization_id"])
            done.append(_one(cli, verb, job))
            if not cli.as_json:
                cli.out.print(_line(verb, done[-1]))
    except Unreachable:
        cli.note(f"{_summary(verb, done)} The service went away: run it again for the rest.")
        raise
    failed = [one for one in done if one["result"] == "failed"]
    document = {"object": "list", "data": done, "has_more": False}
    cli.show(document, lambda: [_summary(verb, done)])
    if done:
        cli.note(verb.after)
    return ExitCode.FAILED if failed else ExitCode.OK


def _fitting(cli: Cli, verb: _Verb) -> list[Json]:
    return [job for job in pages(cli.client, JOBS, sys.maxsize) if verb.fits(job)]


def _fitting_of_all(cli: Cli, verb: _Verb) -> list[Json]:
    """Each with the name of its project."""
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
        raise Trouble(f"No job was told to {verb.name}.", code="not_confirmed")


def _one(cli: Cli, verb: _Verb, job: Json) -> Json:
    """What came of it; a service that is away is everybody's trouble."""
    told = {"id": job["id"], "project": job.get("project"), "result": "told", "why": None}
    try:
        cli.client.post(f"{JOBS}/{job['id']}/{verb.name}")
    except Unreachable:
        raise
    except Trouble as trouble:
        is_over = verb is _PAUSE and trouble.code == _OVER_MEANWHILE
        told |= {"result": "over" if is_over else "failed", "why": trouble.message}
    return told


def _line(verb: _Verb, one: Json) -> str:
    where = f" of {formats.safe(one['project'])}" if one["project"] else ""
    told = f"told to {verb.name}"
    what = {"told": told, "over": "is over", "failed": f"could not be {told}"}[one["result"]]
    why = f": {one['why']}" if one["why"] else ""
    return f"{one['id']}{where}: {what}{why}"


def _summary(verb: _Verb, done: Iterable[Json]) -> str:
    counts = Counter(one["result"] for one in done)
    over = f"; {counts['over']:,} ended meanwhile" if counts["over"] else ""
    failed = f"; {counts['failed']:,} could not be" if counts["failed"] else ""
    return f"{formats.count(counts['told'], 'job')} told to {verb.name}{over}{failed}."
