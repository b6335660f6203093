"""Decide a pipeline's next step from its file and its jobs. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rekindle.cli import formats
from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.pipelines.pipeline_file import Pipeline, PipelinePhase, phase_tags

Json = Mapping[str, Any]
_SUCCEEDED = "succeeded"


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
    pipeline: Pipeline, jobs: Sequence[Json], *, retried: str | None = None
) -> SubmitPhase | FollowJob | PipelineDone:
    """Return the next step: of the first phase without a model. ``jobs`` are newest first.

    Raises CliError if its newest job failed, unless that is job ``retried``, or if a phase was
    changed after its job was created.
    """
    models: dict[str, str] = {}
    for phase in pipeline.phases:
        phase_jobs = [job for job in jobs if _metadata_tag(job, "phase") == phase.name]
        newest = phase_jobs[0] if phase_jobs else None
        if newest is None or newest["id"] == retried:
            return SubmitPhase(phase=phase, models=models, earlier=len(phase_jobs))
        if newest.get("status") != _SUCCEEDED and formats.has_ended(newest):
            raise _phase_failed(phase, newest)
        if _metadata_tag(newest, "written") != phase_tags(pipeline, phase)["written"]:
            raise _phase_changed(pipeline, phase, newest)
        if newest.get("status") != _SUCCEEDED:
            return FollowJob(phase=phase, job=str(newest["id"]))
        models[phase.name] = str(newest["fine_tuned_model"])
    return PipelineDone(models=models)


def job_to_retry(pipeline: Pipeline, jobs: Sequence[Json]) -> str | None:
    """Return the job to retry: the newest of the first phase whose newest job failed."""
    for phase in pipeline.phases:
        phase_jobs = [job for job in jobs if _metadata_tag(job, "phase") == phase.name]
        if phase_jobs and phase_jobs[0].get("status") != _SUCCEEDED:
            return str(phase_jobs[0]["id"]) if formats.has_ended(phase_jobs[0]) else None
    return None


def _metadata_tag(job: Json, name: str) -> object:
    return formats.object_member(job, "metadata").get(name)


def _phase_failed(phase: PipelinePhase, job: Json) -> CliError:
    message = formats.object_member(job, "error").get("message")
    why = f": {formats.printable_line(str(message).splitlines()[0]).rstrip('.')}" if message else ""
    return CliError(
        f"Phase {phase.name} ended as {job.get('status')}: job {job['id']}{why}.",
        f"See the cause: rekindle show {job['id']}. Correct the phase if needed and rerun with "
        "--retry; succeeded phases are kept.",
        code="phase_failed",
    )


def _phase_changed(pipeline: Pipeline, phase: PipelinePhase, job: Json) -> CliError:
    return CliError(
        f"Phase {phase.name} was changed since it was submitted as {job['id']}.",
        f"Undo the change, or rename the pipeline {pipeline.name}: a new name runs all phases "
        "again.",
        exit_code=ExitCode.USAGE,
        code="phase_changed",
    )
