"""Decide a pipeline's next step from its file and its jobs. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rekindle.cli import formats
from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.pipelines.pipeline_file import Pipeline, PipelinePhase, tags

Json = Mapping[str, Any]
_GOOD = "succeeded"


@dataclass(frozen=True, kw_only=True)
class SubmitPhase:
    """Submit the phase's job."""

    phase: PipelinePhase
    models: Mapping[str, str]  # phase -> its model
    earlier: int  # number of earlier jobs of this phase


@dataclass(frozen=True, kw_only=True)
class FollowJob:
    """The phase's job exists and has not ended."""

    phase: PipelinePhase
    job: str


@dataclass(frozen=True, kw_only=True)
class PipelineDone:
    """Every phase has its model."""

    models: Mapping[str, str]


def next_step(
    pipeline: Pipeline, jobs: Sequence[Json], *, again: str | None = None
) -> SubmitPhase | FollowJob | PipelineDone:
    """Return the next step: of the first phase without a model. ``jobs`` are newest first.

    Raises CliError if its newest job failed, unless that is job ``again``, or if a phase was
    changed after its job was created.
    """
    models: dict[str, str] = {}
    for phase in pipeline.phases:
        own = [job for job in jobs if _tag(job, "phase") == phase.name]
        newest = own[0] if own else None
        if newest is None or newest["id"] == again:
            return SubmitPhase(phase=phase, models=models, earlier=len(own))
        if newest.get("status") != _GOOD and formats.has_ended(newest):
            raise _failed(phase, newest)
        if _tag(newest, "written") != tags(pipeline, phase)["written"]:
            raise _changed(pipeline, phase, newest)
        if newest.get("status") != _GOOD:
            return FollowJob(phase=phase, job=str(newest["id"]))
        models[phase.name] = str(newest["fine_tuned_model"])
    return PipelineDone(models=models)


def came_to_nothing(pipeline: Pipeline, jobs: Sequence[Json]) -> str | None:
    """Return the job to retry: the newest of the first phase whose newest job failed."""
    for phase in pipeline.phases:
        own = [job for job in jobs if _tag(job, "phase") == phase.name]
        if own and own[0].get("status") != _GOOD:
            return str(own[0]["id"]) if formats.has_ended(own[0]) else None
    return None


def _tag(job: Json, name: str) -> object:
    return formats.object_member(job, "metadata").get(name)


def _failed(phase: PipelinePhase, job: Json) -> CliError:
    said = formats.object_member(job, "error").get("message")
    why = f": {formats.printable_line(str(said).splitlines()[0]).rstrip('.')}" if said else ""
    return CliError(
        f"Phase {phase.name} ended as {job.get('status')}: job {job['id']}{why}.",
        f"See the cause: rekindle show {job['id']}. Correct the phase if needed and rerun with "
        "--retry; succeeded phases are kept.",
        code="phase_failed",
    )


def _changed(pipeline: Pipeline, phase: PipelinePhase, job: Json) -> CliError:
    return CliError(
        f"Phase {phase.name} was changed since it was submitted as {job['id']}.",
        f"Undo the change, or rename the pipeline {pipeline.name}: a new name runs all phases "
        "again.",
        exit_code=ExitCode.USAGE,
        code="phase_changed",
    )
