"""What a pipeline does next, of its file and of the jobs that there are. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rekindle.cli import formats
from rekindle.cli.errors import ExitCode, Trouble
from rekindle.cli.pipelines.pipeline_file import Phase, Pipeline, tags

Json = Mapping[str, Any]
_GOOD = "succeeded"


@dataclass(frozen=True, kw_only=True)
class Submit:
    """Make the phase's job."""

    phase: Phase
    models: Mapping[str, str]  # phase -> what it has made
    earlier: int  # jobs of this phase that came to nothing


@dataclass(frozen=True, kw_only=True)
class Follow:
    """The phase's job is there and not over."""

    phase: Phase
    job: str


@dataclass(frozen=True, kw_only=True)
class Done:
    """Every phase has its model."""

    models: Mapping[str, str]


def next_step(
    pipeline: Pipeline, jobs: Sequence[Json], *, again: str | None = None
) -> Submit | Follow | Done:
    """The first phase that has no model yet decides; ``jobs`` are the pipeline's, newest first.

    Raises Trouble where its newest job came to nothing, unless that is job ``again``, and where a
    phase was changed since its job was made.
    """
    models: dict[str, str] = {}
    for phase in pipeline.phases:
        own = [job for job in jobs if _tag(job, "phase") == phase.name]
        newest = own[0] if own else None
        if newest is None or newest["id"] == again:
            return Submit(phase=phase, models=models, earlier=len(own))
        if newest.get("status") != _GOOD and formats.is_over(newest):
            raise _failed(phase, newest)
        if _tag(newest, "written") != tags(pipeline, phase)["written"]:
            raise _changed(pipeline, phase, newest)
        if newest.get("status") != _GOOD:
            return Follow(phase=phase, job=str(newest["id"]))
        models[phase.name] = str(newest["fine_tuned_model"])
    return Done(models=models)


def came_to_nothing(pipeline: Pipeline, jobs: Sequence[Json]) -> str | None:
    """The job to make again: the newest of the first phase whose newest job has failed."""
    for phase in pipeline.phases:
        own = [job for job in jobs if _tag(job, "phase") == phase.name]
        if own and own[0].get("status") != _GOOD:
            return str(own[0]["id"]) if formats.is_over(own[0]) else None
    return None


def _tag(job: Json, name: str) -> object:
    return formats.part(job, "metadata").get(name)


def _failed(phase: Phase, job: Json) -> Trouble:
    said = formats.part(job, "error").get("message")
    why = f": {formats.safe(str(said).splitlines()[0])}" if said else ""
    return Trouble(
        f"Phase {phase.name} has {job.get('status')} as {job['id']}{why}.",
        f"See why: rekindle show {job['id']}. Mend the phase if it is at fault, and run the "
        "pipeline again with --retry; phases that have succeeded are kept.",
        code="phase_failed",
    )


def _changed(pipeline: Pipeline, phase: Phase, job: Json) -> Trouble:
    return Trouble(
        f"Phase {phase.name} was changed since it was submitted as {job['id']}.",
        f"Put it back as it was, or give the pipeline another name than {pipeline.name}: then all "
        "its phases are done anew.",
        exit_code=ExitCode.USAGE,
        code="phase_changed",
    )
