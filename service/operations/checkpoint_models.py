"""Checkpoints that a job may begin with, by the names that they have as models.

A job that is not over deletes old checkpoints, and knows nothing of other jobs that read them. So
until then only its milestones can be used, which it keeps.
"""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.jobs import jobs
from service.db.jobs.jobs import JobRow
from service.db.storage import checkpoints
from service.db.storage.checkpoints import Kept
from service.domain.models import lineage
from service.domain.states import JOB_TERMINAL
from service.operations.models import full_name

_SHOWN = 10  # steps in an error


class UnusableCheckpoint(Exception):
    """Says why no job can begin with it, and what to do."""


@dataclass(frozen=True, kw_only=True)
class CheckpointModel:
    """A committed checkpoint, and the job that has made it."""

    job: JobRow
    kept: Kept

    @property
    def name(self) -> str:
        """In full."""
        return lineage.checkpoint_name(full_name(self.job), self.kept.step)


async def usable(conn: AsyncConnection, project_id: str) -> list[CheckpointModel]:
    """All of the project that a job can begin with, newest job first, newest step first."""
    found = await checkpoints.kept_in_project(conn, project_id)
    makers = await jobs.find_all(conn, {kept.job_id for kept in found})
    bases = [base for job in makers.values() if (base := lineage.base_of(job.model))]
    read = await jobs.find_all(conn, {base.job_id for base in bases})
    listed = [CheckpointModel(job=makers[kept.job_id], kept=kept) for kept in found]
    return [each for each in listed if not _why_not(each) and _has_base(each.job, read.values())]


async def find(conn: AsyncConnection, project_id: str, name: str) -> CheckpointModel:
    """The checkpoint of this name, or raise UnusableCheckpoint."""
    source, job = lineage.source(name), await named(conn, project_id, name)
    if job is None:
        raise UnusableCheckpoint(
            f"No model {name!r}. See GET /v1/models for those that there are; of a checkpoint it "
            "is its fine_tuned_model_checkpoint."
        )
    found = await checkpoints.kept_of(conn, job.id)
    for kept in found:
        if kept.step == source.step:
            if why := _why_not(each := CheckpointModel(job=job, kept=kept)):
                raise UnusableCheckpoint(why)
            return each
    raise UnusableCheckpoint(_no_such_step(job, source.step or 0, [k.step for k in found]))


async def named(conn: AsyncConnection, project_id: str, name: str) -> JobRow | None:
    """The project's job of which a checkpoint of this name would be."""
    job = await jobs.find(conn, lineage.maker(name), project_id)
    if job is None or lineage.without_step(name) not in (job.id, full_name(job)):
        return None
    return job


def _why_not(found: CheckpointModel) -> str:
    job, kept = found.job, found.kept
    if job.state in JOB_TERMINAL or kept.kept_as == "milestone":
        return ""
    return (
        f"Job {job.id} is {job.state} and may delete the checkpoint of step {kept.step} when it "
        "saves newer ones. Wait until the job is over, cancel it, or use one of its milestones "
        "(training.milestone_every_steps)."
    )


def _has_base(maker: JobRow, read: Collection[JobRow]) -> bool:
    """Whether the model that the maker began with is still there."""
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
