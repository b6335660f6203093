"""`rekindle pipeline`: run jobs in order, each from the models of earlier ones.

A pipeline's state is its file and its jobs' metadata, so the command can be rerun at any time and
continues where it was. Submitted jobs do not depend on this command.
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
from rekindle.cli.files.upload import is_file_id, require
from rekindle.cli.job_lookup import JOBS, list_items
from rekindle.cli.pipelines.pipeline_file import Pipeline, PipelinePhase, read, tags
from rekindle.cli.pipelines.pipeline_steps import (
    FollowJob,
    PipelineDone,
    SubmitPhase,
    came_to_nothing,
    next_step,
)
from rekindle.cli.submit.submit_command import with_uploads

if TYPE_CHECKING:
    from rich.console import RenderableType

Json = dict[str, Any]


def pipeline(
    cli: Cli,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Pipeline file in YAML or JSON: phases in order; see docs/training.md.",
        ),
    ],
    *,
    retry: Annotated[bool, typer.Option("--retry", help="Submit the failed phase again.")] = False,
) -> int | None:
    """Run training phases in order, each from earlier models. Rerun to continue."""
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
    if isinstance(step, SubmitPhase):
        _tell_estimate(cli, asked, step)
    while not isinstance(step, PipelineDone):
        _carry_out(cli, asked, step)
        step = next_step(asked, _jobs(cli, asked))
    document = {"object": "pipeline", "name": asked.name, "models": dict(step.models)}
    models = step.models
    cli.show(document, lambda: _made(asked, models))
    return ExitCode.OK


def _carry_out(cli: Cli, asked: Pipeline, step: SubmitPhase | FollowJob) -> None:
    """Submit or follow the phase's job until it ends."""
    job = step.job if isinstance(step, FollowJob) else _submit(cli, asked, step)
    place = f"{asked.phases.index(step.phase) + 1} of {len(asked.phases)}"
    cli.note(f"phase {step.phase.name} ({place}) is {job}", style="bold")
    from rekindle.cli.jobs.watch import follow

    if follow(cli, job) == ExitCode.INTERRUPTED:
        raise KeyboardInterrupt


def _submit(cli: Cli, asked: Pipeline, step: SubmitPhase) -> str:
    """Return the id of the phase's job; a repeat or a parallel run creates no second job."""
    phase = step.phase
    body = phase.with_models(lambda name: step.models[name])
    body = with_uploads(cli, body, same_once=True)
    body["metadata"] = {**(body.get("metadata") or {}), **tags(asked, phase)}
    key = f"pipeline:{asked.name}:{phase.name}:{phase.written}:{step.earlier}"
    return str(cli.client.post(JOBS, body, headers={"idempotency-key": key})["id"])


def _tell_estimate(cli: Cli, asked: Pipeline, step: SubmitPhase) -> None:
    """Print the estimated cost of the remaining phases.

    A phase's result is as large as its base model. The cost of a phase is unknown until the
    reward model that its grader asks exists.
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
    cli.note(f"  about {formats.money(total, unit)} in total{of}")


def _plan(
    cli: Cli, asked: Pipeline, phase: PipelinePhase, models: Mapping[str, str]
) -> Json | None:
    """Return the service's plan without creating a job; raise CliError if it refuses."""
    body = with_uploads(
        cli, phase.body, same_once=True
    )  # finds a bad file before the first phase costs money
    missing = [name for name in phase.needs if name not in models]
    if any(phase.body["model"] != f"${name}" for name in missing):
        return None
    known = {**dict.fromkeys(missing, asked.base_of(phase)), **models}
    body = replace(phase, body=body).with_models(lambda name: known[name])
    plan: Json = cli.client.post(f"{JOBS}?dry_run=true", body)["plan"]
    return plan


def _estimate(plan: Json | None) -> str:
    if plan is None:
        return "unknown until the grader's model is trained"
    unit = plan.get("currency", "USD")
    cost, long = (
        formats.money(plan.get("cost_p50"), unit),
        formats.duration(plan.get("duration_p50")),
    )
    return f"about {cost} and {long}, {plan.get('nodes')} x {plan.get('vm_size')}"


def _jobs(cli: Cli, asked: Pipeline) -> list[Json]:
    """Return the pipeline's jobs, newest first."""
    return list_items(cli.client, JOBS, query={"metadata[pipeline]": asked.name})


def _require_files(asked: Pipeline) -> None:
    for phase in asked.phases:
        for named in phase.files:
            if not is_file_id(named):
                require(Path(named))


def _made(asked: Pipeline, models: Mapping[str, str]) -> "Iterable[RenderableType]":
    yield f"Pipeline {asked.name} is complete."
    for phase in asked.phases:
        yield f"  {phase.name}: {models[phase.name]}"
    last = models[asked.phases[-1].name].rpartition(":")[2]
    yield f"Next: rekindle download {last} model/"


def _interrupted(cli: Cli, file: Path) -> int:
    cli.note(
        "Submitted jobs continue; later phases are not submitted.\n"
        f"Continue: rekindle pipeline {file}"
    )
    return ExitCode.INTERRUPTED
