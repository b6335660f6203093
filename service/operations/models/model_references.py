"""References to models and checkpoints of other jobs, which must stay readable.

Nothing is copied, so archiving or deleting one would stop the jobs that start from it. Writing a
job, requesting the archive tier (tier_moves.py) and deleting all take the same lock.
"""

from collections.abc import Iterable

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.jobs import jobs
from service.db.jobs.jobs import JobRow
from service.db.storage import checkpoints, tier_moves
from service.domain.errors import Archived, UnsupportedModel
from service.domain.models import lineage
from service.domain.models.lineage import ModelSource
from service.domain.storage.access_tiers import AccessTier


def lock_key(job_id: str, path: str) -> str:
    """Return the key of the lock on a folder's tier moves and its readers."""
    return f"tier:{job_id}:{path}"


async def reserve_sources(
    conn: AsyncConnection, project_id: str, sources: Iterable[ModelSource]
) -> None:
    """Keep the sources readable for a job that this transaction writes.

    Raises Archived where one is moving to the archive tier, InvalidRequest where one was deleted.
    """
    for source in sorted(await _with_bases(conn, sources), key=str):
        job = await jobs.find(conn, source.job_id, project_id)
        assert job is not None, "jobs are never deleted"
        path, _ = await _find_folder(conn, job, source)
        await jobs.acquire_lock(conn, lock_key(job.id, path))
        _, option = await _find_folder(conn, job, source)
        move = await tier_moves.open_for(conn, job.id, path)
        if move is not None and move.tier is AccessTier.ARCHIVE:
            raise Archived(
                f"{_source_name(source)} is on its way to the archive. Bring it back first: "
                f"rekindle tier {job.id} hot{option}."
            )


async def list_readers(
    conn: AsyncConnection, project_id: str, source: ModelSource
) -> tuple[str, ...]:
    """Return the ids of the live jobs that read the source."""
    unfinished_jobs = await jobs.unfinished_jobs(conn, project_id)
    return tuple(sorted([job.id for job in unfinished_jobs if await _is_reader(conn, job, source)]))


async def _is_reader(conn: AsyncConnection, job: JobRow, source: ModelSource) -> bool:
    sources = lineage.sources(job.model, job.parsed_plan.recipe.reinforcement)
    return source in sources or source in await _with_bases(conn, sources)


async def _with_bases(conn: AsyncConnection, sources: Iterable[ModelSource]) -> set[ModelSource]:
    """Return the sources and the models that the jobs of their checkpoints started from."""
    all_sources = set(sources)
    for source in [candidate for candidate in all_sources if candidate.is_checkpoint]:
        job = await jobs.find(conn, source.job_id)
        if job is not None and (base := lineage.base_of(job.model)):
            all_sources.add(base)
    return all_sources


async def _find_folder(conn: AsyncConnection, job: JobRow, source: ModelSource) -> tuple[str, str]:
    """Return its folder and its name for `rekindle tier`; InvalidRequest if it was deleted."""
    if not source.is_checkpoint:
        assert job.result is not None, "it has succeeded"
        if not await jobs.is_model_deleted(conn, job.id):
            return str(job.result["path"]), ""
    for checkpoint in await checkpoints.of_job(conn, job.id):
        if checkpoint.step == source.step:
            return checkpoint.path, f" --checkpoint {checkpoint.id}"
    raise UnsupportedModel(
        f"{_source_name(source)} was deleted. Take another one.",
        param=lineage.OF_BASE,
    )


def _source_name(source: ModelSource) -> str:
    kind = "final model" if source.step is None else f"checkpoint of step {source.step}"
    return f"The {kind} of {source.job_id}"
