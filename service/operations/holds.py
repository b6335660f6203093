"""What other jobs have made and a job reads: who needs it, and that it stays readable until then.

Nothing is copied, so archiving or deleting it would stop whoever begins with it. All sides take the
same turn: one that writes a job, one that asks for the archive (tier_moves.py), one that deletes.
"""

from collections.abc import Iterable

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.jobs import jobs
from service.db.jobs.jobs import JobRow
from service.db.storage import checkpoints, tier_moves
from service.domain.errors import Archived, InvalidRequest
from service.domain.models import lineage
from service.domain.models.lineage import Source
from service.domain.planning.plan import Plan
from service.domain.storage.access_tiers import Tier


def turn(job_id: str, path: str) -> str:
    """What is waited for before a folder's moves, or who needs it, may change."""
    return f"tier:{job_id}:{path}"


async def hold(conn: AsyncConnection, project_id: str, sources: Iterable[Source]) -> None:
    """Have what these name stay readable for a job that this transaction writes.

    Raises Archived where one is on its way to the archive, InvalidRequest where one was deleted.
    """
    for source in sorted(await _with_bases(conn, sources), key=str):
        job = await jobs.find(conn, source.job_id, project_id)
        assert job is not None, "jobs are never deleted"
        path, _ = await _folder(conn, job, source)
        await jobs.take_turn(conn, turn(job.id, path))
        _, option = await _folder(conn, job, source)
        move = await tier_moves.open_for(conn, job.id, path)
        if move is not None and move.tier is Tier.ARCHIVE:
            raise Archived(
                f"{_named(source)} is on its way to the archive. Bring it back first: "
                f"rekindle tier {job.id} hot{option}."
            )


async def needed_by(conn: AsyncConnection, project_id: str, source: Source) -> tuple[str, ...]:
    """The jobs that are not over and read it, by id."""
    alive = await jobs.alive(conn, project_id)
    return tuple(sorted([job.id for job in alive if await _reads(conn, job, source)]))


async def _reads(conn: AsyncConnection, job: JobRow, source: Source) -> bool:
    named = lineage.sources(job.model, Plan.from_dict(job.plan).recipe.reinforcement)
    return source in named or source in await _with_bases(conn, named)


async def _with_bases(conn: AsyncConnection, sources: Iterable[Source]) -> set[Source]:
    """These, and the models that the jobs of checkpoints began with."""
    found = set(sources)
    for source in [each for each in found if each.is_checkpoint]:
        job = await jobs.find(conn, source.job_id)
        if job is not None and (base := lineage.base_of(job.model)):
            found.add(base)
    return found


async def _folder(conn: AsyncConnection, job: JobRow, source: Source) -> tuple[str, str]:
    """Return its folder and its name for `rekindle tier`; InvalidRequest if it was deleted."""
    if not source.is_checkpoint:
        assert job.result is not None, "it has succeeded"
        if not await jobs.is_model_deleted(conn, job.id):
            return str(job.result["path"]), ""
    for kept in await checkpoints.kept_of(conn, job.id):
        if kept.step == source.step:
            return kept.path, f" --checkpoint {kept.id}"
    raise InvalidRequest(
        f"{_named(source)} was deleted. Take another one.",
        code="unsupported_model",
        param=lineage.OF_BASE,
    )


def _named(source: Source) -> str:
    what = "final model" if source.step is None else f"checkpoint of step {source.step}"
    return f"The {what} of {source.job_id}"
