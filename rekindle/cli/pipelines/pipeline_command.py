"""`rekindle pipeline`: several jobs one after the other, each from what those before have made.

All that is known of a pipeline lies in its file and in its jobs' metadata, so it can be run again
at any time and goes on where it was. The jobs are the service's: they go on without this command.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.cli import formats
from rekindle.cli.command import Cli
from rekindle.cli.errors import ExitCode
from rekindle.cli.files.upload import require, upload
from rekindle.cli.job_lookup import JOBS, pages
from rekindle.cli.pipelines.pipeline_file import Phase, Pipeline, read, tags
from rekindle.cli.pipelines.pipeline_steps import Done, Follow, Submit, came_to_nothing, next_step

if TYPE_CHECKING:
    from rich.console import RenderableType

Json = dict[str, Any]


def pipeline(
    cli: Cli,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Phases in order, in YAML or JSON; the quickstart has an example."
        ),
    ],
    *,
    retry: Annotated[
        bool, typer.Option("--retry", help="Make the job of a phase that has failed anew.")
    ] = False,
) -> int | None:
    """Train phase after phase, each from the models of earlier ones. Run again, it goes on."""
    asked = read(file)
    _require_files(asked)
    try:
        return _run(cli, asked, retry=retry)
    except KeyboardInterrupt:
        return _interrupted(cli, file)


def _run(cli: Cli, asked: Pipeline, *, retry: bool) -> int:
    jobs = _jobs(cli, asked)
    again = came_to_nothing(asked, jobs) if retry else None
    step = next_step(asked, jobs, again=again)
    if isinstance(step, Submit):
        _tell_estimate(cli, asked, step)
    while not isinstance(step, Done):
        _carry_out(cli, asked, step)
        step = next_step(asked, _jobs(cli, asked))
    document = {"object": "pipeline", "name": asked.name, "models": dict(step.models)}
    models = step.models
    cli.show(document, lambda: _made(asked, models))
    return ExitCode.OK


def _carry_out(cli: Cli, asked: Pipeline, step: Submit | Follow) -> None:
    """Until the phase's job is over."""
    job = step.job if isinstance(step, Follow) else _submit(cli, asked, step)
    place = f"{asked.phases.index(step.phase) + 1} of {len(asked.phases)}"
    cli.note(f"phase {step.phase.name} ({place}) is {job}", style="bold")
    from rekindle.cli.jobs.watch import follow

    if follow(cli, job) == ExitCode.INTERRUPTED:
        raise KeyboardInterrupt


def _submit(cli: Cli, asked: Pipeline, step: Submit) -> str:
    """The job's id. A repeat, or two of this command at once, make no second job."""
    phase = step.phase
    body = _sent(cli, phase.with_models(lambda name: step.models[name]))
    body["metadata"] = {**(body.get("metadata") or {}), **tags(asked, phase)}
    key = f"pipeline:{asked.name}:{phase.name}:{phase.written}:{step.earlier}"
    return str(cli.client.post(JOBS, body, headers={"idempotency-key": key})["id"])


def _sent(cli: Cli, body: Json) -> Json:
    """With its files uploaded; those that are there already are not sent again."""
    named = {m: body[m] for m in ("training_file", "validation_file") if body.get(m)}
    return body | {m: _file(cli, name) for m, name in named.items()}


def _file(cli: Cli, named: str) -> str:
    if named.startswith("file-") and not Path(named).exists():
        return named
    return str(upload(cli, Path(named), same_once=True)["id"])


def _tell_estimate(cli: Cli, asked: Pipeline, step: Submit) -> None:
    """What the phases to come cost, as far as it can be known before the first is done.

    What a phase will have made is as large as what its line begins with; which reward model a
    grader asks is not known before there is one.
    """
    left = asked.phases[asked.phases.index(step.phase) :]
    plans = {phase.name: _plan(cli, asked, phase, step.models) for phase in left}
    if cli.as_json:
        return
    known = [plan for plan in plans.values() if plan]
    for name, plan in plans.items():
        cli.note(f"  {name}: {_estimate(plan)}")
    total = sum((Decimal(str(plan.get("cost_p50", 0))) for plan in known), Decimal(0))
    unit = known[0].get("currency", "USD") if known else "USD"
    of = (
        ""
        if len(known) == len(left)
        else f" for {len(known)} of {formats.count(len(left), 'phase')}"
    )
    cli.note(f"  in all about {formats.money(total, unit)}{of}")


def _plan(cli: Cli, asked: Pipeline, phase: Phase, models: Mapping[str, str]) -> Json | None:
    """The service's, and no job; raises Trouble for what it would refuse."""
    body = _sent(cli, phase.body)  # a bad file is found before the first phase is paid for
    missing = [name for name in phase.needs if name not in models]
    if any(phase.body["model"] != f"${name}" for name in missing):
        return None
    known = {**dict.fromkeys(missing, asked.base_of(phase)), **models}
    body = replace(phase, body=body).with_models(lambda name: known[name])
    plan: Json = cli.client.post(f"{JOBS}?dry_run=true", body)["plan"]
    return plan


def _estimate(plan: Json | None) -> str:
    if plan is None:
        return "not known before the model is there that its grader asks"
    unit = plan.get("currency", "USD")
    cost, long = (
        formats.money(plan.get("cost_p50"), unit),
        formats.duration(plan.get("duration_p50")),
    )
    return f"about {cost} and {long}, {plan.get('nodes')} x {plan.get('vm_size')}"


def _jobs(cli: Cli, asked: Pipeline) -> list[Json]:
    """Those of the pipeline, newest first."""
    return pages(cli.client, JOBS, query={"metadata[pipeline]": asked.name})


def _require_files(asked: Pipeline) -> None:
    for phase in asked.phases:
        for named in phase.files:
            if not named.startswith("file-"):
                require(Path(named))


def _made(asked: Pipeline, models: Mapping[str, str]) -> "Iterable[RenderableType]":
    yield f"Pipeline {asked.name} is done."
    for phase in asked.phases:
        yield f"  {phase.name}: {models[phase.name]}"
    last = models[asked.phases[-1].name].rpartition(":")[2]
    yield f"Next: rekindle download {last} model/"


def _interrupted(cli: Cli, file: Path) -> int:
    cli.note(
        "Jobs that were submitted go on; phases after them wait for you.\n"
        f"Go on: rekindle pipeline {file}"
    )
    return ExitCode.INTERRUPTED
