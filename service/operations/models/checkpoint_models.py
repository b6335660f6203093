"""Checkpoints that a job may start from, by the names that they have as models.

A live job deletes old checkpoints and does not know of other jobs that read them. Until it is over
only its milestones can be used, because it keeps them.
"""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.jobs import jobs
from service.db.jobs.jobs import JobRow
from service.db.storage import checkpoints
from service.db.storage.checkpoints import StoredCheckpoint
from service.domain.models import lineage
from service.domain.states import JOB_TERMINAL
from service.operations.models.models import full_name

_MAX_STEPS_SHOWN = 10  # steps in an error


class UnusableCheckpoint(Exception):
    """Says why no job can start from the checkpoint, and what to do."""


@dataclass(frozen=True, kw_only=True)
class CheckpointModel:
    """A committed checkpoint, and the job that has made it."""

    job: JobRow
    row: StoredCheckpoint

    @property
    def name(self) -> str:
        """Return the checkpoint's full model name."""
        return lineage.checkpoint_name(full_name(self.job), self.row.step)


async def list_usable(conn: AsyncConnection, project_id: str) -> list[CheckpointModel]:
    """Return the project's usable checkpoints: newest job first, newest step first."""
    rows = await checkpoints.in_project(conn, project_id)
    makers = await jobs.find_all(conn, {row.job_id for row in rows})
    bases = [base for job in makers.values() if (base := lineage.base_of(job.model))]
    base_jobs = await jobs.find_all(conn, {base.job_id for base in bases})
    candidates = [CheckpointModel(job=makers[row.job_id], row=row) for row in rows]
    return [
        checkpoint
        for checkpoint in candidates
        if not _unusable_reason(checkpoint) and _has_base(checkpoint.job, base_jobs.values())
    ]


async def find(conn: AsyncConnection, project_id: str, name: str) -> CheckpointModel:
    """Return the checkpoint of this name, or raise UnusableCheckpoint."""
    source, job = lineage.source(name), await find_maker(conn, project_id, name)
    if job is None:
        raise UnusableCheckpoint(
            f"No model {name!r}. List models: GET /v1/models. The model of a checkpoint is its "
            "fine_tuned_model_checkpoint."
        )
    rows = await checkpoints.of_job(conn, job.id)
    for row in rows:
        if row.step == source.step:
            if reason := _unusable_reason(checkpoint := CheckpointModel(job=job, row=row)):
                raise UnusableCheckpoint(reason)
            return checkpoint
    raise UnusableCheckpoint(_no_such_step(job, source.step or 0, [k.step for k in rows]))


async def find_maker(conn: AsyncConnection, project_id: str, name: str) -> JobRow | None:
    """Return the project's job that a checkpoint of this name belongs to, if there is one."""
    job = await jobs.find(conn, lineage.training_job_id(name), project_id)
    if job is None or lineage.without_step(name) not in (job.id, full_name(job)):
        return None
    return job


def _unusable_reason(checkpoint: CheckpointModel) -> str:
    job, row = checkpoint.job, checkpoint.row
    if job.state in JOB_TERMINAL or row.kept_as == "milestone":
        return ""
    return (
        f"Job {job.id} is {job.state} and may delete the checkpoint of step {row.step} when it "
        "saves newer ones. Wait until the job is over, cancel it, or use one of its milestones "
        "(training.milestone_every_steps)."
    )


def _has_base(maker: JobRow, base_jobs: Collection[JobRow]) -> bool:
    """Return whether the model that the maker started from still exists."""
    base = lineage.base_of(maker.model)
    return base is None or any(
        job.id == base.job_id and not lineage.is_deleted(job.result) for job in base_jobs
    )


def _no_such_step(job: JobRow, step: int, available: list[int]) -> str:
    if not available:
        return f"Job {job.id} has no checkpoint of step {step}: it has no committed checkpoint."
    suffix = (
        f" and {len(available) - _MAX_STEPS_SHOWN} older ones"
        if len(available) > _MAX_STEPS_SHOWN
        else ""
    )
    steps = ", ".join(map(str, available[:_MAX_STEPS_SHOWN]))
    return (
        f"Job {job.id} has no checkpoint of step {step}: it was never committed, or has been "
        f"deleted. There are those of step {steps}{suffix}."
    )
