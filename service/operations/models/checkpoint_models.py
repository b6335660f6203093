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

_SHOWN = 10  # steps in an error


class UnusableCheckpoint(Exception):
    """Says why no job can start from the checkpoint, and what to do."""


@dataclass(frozen=True, kw_only=True)
class CheckpointModel:
    """A committed checkpoint, and the job that has made it."""

    job: JobRow
    kept: StoredCheckpoint

    @property
    def name(self) -> str:
        """Return the checkpoint's full model name."""
        return lineage.checkpoint_name(full_name(self.job), self.kept.step)


async def list_usable(conn: AsyncConnection, project_id: str) -> list[CheckpointModel]:
    """Return the project's usable checkpoints: newest job first, newest step first."""
    found = await checkpoints.in_project(conn, project_id)
    makers = await jobs.find_all(conn, {kept.job_id for kept in found})
    bases = [base for job in makers.values() if (base := lineage.base_of(job.model))]
    read = await jobs.find_all(conn, {base.job_id for base in bases})
    listed = [CheckpointModel(job=makers[kept.job_id], kept=kept) for kept in found]
    return [
        each for each in listed if not _unusable_reason(each) and _has_base(each.job, read.values())
    ]


async def find(conn: AsyncConnection, project_id: str, name: str) -> CheckpointModel:
    """Return the checkpoint of this name, or raise UnusableCheckpoint."""
    source, job = lineage.source(name), await find_maker(conn, project_id, name)
    if job is None:
        raise UnusableCheckpoint(
            f"No model {name!r}. List models: GET /v1/models. The model of a checkpoint is its "
            "fine_tuned_model_checkpoint."
        )
    found = await checkpoints.of_job(conn, job.id)
    for kept in found:
        if kept.step == source.step:
            if why := _unusable_reason(each := CheckpointModel(job=job, kept=kept)):
                raise UnusableCheckpoint(why)
            return each
    raise UnusableCheckpoint(_no_such_step(job, source.step or 0, [k.step for k in found]))


async def find_maker(conn: AsyncConnection, project_id: str, name: str) -> JobRow | None:
    """Return the project's job that a checkpoint of this name belongs to, if there is one."""
    job = await jobs.find(conn, lineage.training_job(name), project_id)
    if job is None or lineage.without_step(name) not in (job.id, full_name(job)):
        return None
    return job


def _unusable_reason(found: CheckpointModel) -> str:
    job, kept = found.job, found.kept
    if job.state in JOB_TERMINAL or kept.kept_as == "milestone":
        return ""
    return (
        f"Job {job.id} is {job.state} and may delete the checkpoint of step {kept.step} when it "
        "saves newer ones. Wait until the job is over, cancel it, or use one of its milestones "
        "(training.milestone_every_steps)."
    )


def _has_base(maker: JobRow, read: Collection[JobRow]) -> bool:
    """Return whether the model that the maker started from still exists."""
    base = lineage.base_of(maker.model)
    return base is None or any(
        job.id == base.job_id and not lineage.is_deleted(job.result) for job in read
    )


def _no_such_step(job: JobRow, step: int, there: list[int]) -> str:
    if not there:
        return f"Job {job.id} has no checkpoint of step {step}: it has no committed checkpoint."
    more = f" and {len(there) - _SHOWN} older ones" if len(there) > _SHOWN else ""
    steps = ", ".join(map(str, there[:_SHOWN]))
    return (
        f"Job {job.id} has no checkpoint of step {step}: it was never committed, or has been "
        f"deleted. There are those of step {steps}{more}."
    )
