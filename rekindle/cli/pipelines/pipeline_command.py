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
from rekindle.cli.files.upload import is_file_id, require_training_file
from rekindle.cli.job_lookup import JOBS, list_items
from rekindle.cli.pipelines.pipeline_file import Pipeline, PipelinePhase, phase_tags, read_pipeline
from rekindle.cli.pipelines.pipeline_steps import (
    FollowJob,
    PipelineDone,
    SubmitPhase,
    job_to_retry,
    next_step,
)
from rekindle.cli.submit.submit_command import upload_files

if TYPE_CHECKING:
    from rich.console import RenderableType

Json = dict[str, Any]


def run_pipeline(
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
    pipeline = read_pipeline(file)
    _require_files(pipeline)
    try:
        return _run_phases(cli, pipeline, retry=retry)
    except KeyboardInterrupt:
        return _report_interruption(cli, file)


def _run_phases(cli: Cli, pipeline: Pipeline, *, retry: bool) -> int:
    jobs = _list_jobs(cli, pipeline)
    retried = job_to_retry(pipeline, jobs) if retry else None
    step = next_step(pipeline, jobs, retried=retried)
    if isinstance(step, SubmitPhase):
        _print_estimate(cli, pipeline, step)
    while not isinstance(step, PipelineDone):
        _run_step(cli, pipeline, step)
        step = next_step(pipeline, _list_jobs(cli, pipeline))
    document = {"object": "pipeline", "name": pipeline.name, "models": dict(step.models)}
    models = step.models
    cli.print_result(document, lambda: _result_lines(pipeline, models))
    return ExitCode.OK


def _run_step(cli: Cli, pipeline: Pipeline, step: SubmitPhase | FollowJob) -> None:
    """Submit or follow the phase's job until it ends."""
    job = step.job if isinstance(step, FollowJob) else _submit_phase(cli, pipeline, step)
    position = f"{pipeline.phases.index(step.phase) + 1} of {len(pipeline.phases)}"
    cli.print_note(f"phase {step.phase.name} ({position}) is {job}", style="bold")
    from rekindle.cli.jobs.watch import follow_job

    if follow_job(cli, job) == ExitCode.INTERRUPTED:
        raise KeyboardInterrupt


def _submit_phase(cli: Cli, pipeline: Pipeline, step: SubmitPhase) -> str:
    """Return the id of the phase's job; a repeat or a parallel run creates no second job."""
    phase = step.phase
    body = phase.with_models(lambda name: step.models[name])
    body = upload_files(cli, body, reuse=True)
    body["metadata"] = {**(body.get("metadata") or {}), **phase_tags(pipeline, phase)}
    key = f"pipeline:{pipeline.name}:{phase.name}:{phase.body_hash}:{step.earlier}"
    return str(cli.client.post(JOBS, body, headers={"idempotency-key": key})["id"])


def _print_estimate(cli: Cli, pipeline: Pipeline, step: SubmitPhase) -> None:
    """Print the estimated cost of the remaining phases.

    A phase's result is as large as its base model. The cost of a phase is unknown until the
    reward model that its grader asks exists.
    """
    remaining = pipeline.phases[pipeline.phases.index(step.phase) :]
    plans = {phase.name: _plan_phase(cli, pipeline, phase, step.models) for phase in remaining}
    if cli.as_json:
        return
    known_plans = [plan for plan in plans.values() if plan]
    for name, plan in plans.items():
        cli.print_note(f"  {name}: {_estimate_text(plan)}")
    total = sum((Decimal(str(plan.get("cost_p50", 0))) for plan in known_plans), Decimal(0))
    unit = known_plans[0].get("currency", "USD") if known_plans else "USD"
    scope = (
        ""
        if len(known_plans) == len(remaining)
        else f" for {len(known_plans)} of {formats.count(len(remaining), 'phase')}"
    )
    cli.print_note(f"  about {formats.money(total, unit)} in total{scope}")


def _plan_phase(
    cli: Cli, pipeline: Pipeline, phase: PipelinePhase, models: Mapping[str, str]
) -> Json | None:
    """Return the service's plan without creating a job; raise CliError if it refuses."""
    # Finds a bad file before the first phase costs money.
    body = upload_files(cli, phase.body, reuse=True)
    missing = [name for name in phase.needs if name not in models]
    if any(phase.body["model"] != f"${name}" for name in missing):
        return None
    phase_models = {**dict.fromkeys(missing, pipeline.base_model_of(phase)), **models}
    body = replace(phase, body=body).with_models(lambda name: phase_models[name])
    plan: Json = cli.client.post(f"{JOBS}?dry_run=true", body)["plan"]
    return plan


def _estimate_text(plan: Json | None) -> str:
    if plan is None:
        return "unknown until the grader's model is trained"
    unit = plan.get("currency", "USD")
    cost = formats.money(plan.get("cost_p50"), unit)
    duration = formats.duration(plan.get("duration_p50"))
    return f"about {cost} and {duration}, {plan.get('nodes')} x {plan.get('vm_size')}"


def _list_jobs(cli: Cli, pipeline: Pipeline) -> list[Json]:
    """Return the pipeline's jobs, newest first."""
    return list_items(cli.client, JOBS, query={"metadata[pipeline]": pipeline.name})


def _require_files(pipeline: Pipeline) -> None:
    for phase in pipeline.phases:
        for name in phase.files:
            if not is_file_id(name):
                require_training_file(Path(name))


def _result_lines(pipeline: Pipeline, models: Mapping[str, str]) -> "Iterable[RenderableType]":
    yield f"Pipeline {pipeline.name} is complete."
    for phase in pipeline.phases:
        yield f"  {phase.name}: {models[phase.name]}"
    last = models[pipeline.phases[-1].name].rpartition(":")[2]
    yield f"Next: rekindle download {last} model/"


def _report_interruption(cli: Cli, file: Path) -> int:
    cli.print_note(
        "Submitted jobs continue; later phases are not submitted.\n"
        f"Continue: rekindle pipeline {file}"
    )
    return ExitCode.INTERRUPTED
