"""Models of jobs that other jobs read: who needs one, and that it stays readable until then.

Nothing of a model is copied, so archiving it would stop whoever begins with it. Both sides take the
same turn: one that writes a job, and one that asks for the archive (tier_moves.py).
"""

from collections.abc import Iterable

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db import jobs, tiers
from service.db.jobs import JobRow
from service.domain import lineage
from service.domain.errors import Archived, InvalidRequest
from service.domain.plan import Plan
from service.domain.tiers import Tier


def turn(job_id: str, path: str) -> str:
    """What is waited for before a folder's moves, or who needs it, may change."""
    return f"tier:{job_id}:{path}"


async def hold(conn: AsyncConnection, project_id: str, sources: Iterable[str]) -> None:
    """Have the models of these jobs stay readable for a job that this transaction writes.

    Raises Archived where one is on its way to the archive.
    """
    for source in sorted(sources):
        job = await jobs.find(conn, source, project_id)
        assert job is not None, "jobs are never deleted"
        assert job.result is not None, "it has succeeded"
        path = str(job.result["path"])
        await jobs.take_turn(conn, turn(source, path))
        if await jobs.is_model_deleted(conn, source):
            raise InvalidRequest(
                f"The model of job {source} was deleted. Take another one.",
                code="unsupported_model",
                param=lineage.OF_BASE,
            )
        move = await tiers.open_for(conn, source, path)
        if move is not None and move.tier is Tier.ARCHIVE:
            raise Archived(
                f"The final model of {source} is on its way to the archive. Bring it back first: "
                f"rekindle tier {source} hot."
            )


async def needed_by(conn: AsyncConnection, project_id: str, job_id: str) -> tuple[str, ...]:
    """The jobs that are not over and read this one's model, by id."""
    alive = await jobs.alive(conn, project_id)
    return tuple(sorted(job.id for job in alive if job_id in sources(job)))


def sources(job: JobRow) -> frozenset[str]:
    """The jobs whose models it reads."""
    return lineage.sources(job.model, Plan.from_dict(job.plan).recipe.reinforcement)
