"""Read and write which jobs may have garbage in Blob, and how far it was collected."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.schema.tables import jobs

ALL = 2**31 - 1  # collected_generation of an ended job without garbage

# A generation leaves uncommitted files behind; the last one's are garbage once the job has ended.
_DUE = text(f"""
select j.id job_id, j.finished_at is not null is_over, n.number newest, g.number generation,
  g.opened_at, coalesce(n.content -> 'checkpoint' ->> 'path', '') loaded,
  case when jsonb_exists(j.result, 'deleted_at') then j.result ->> 'path' end deleted,
  case when not jsonb_exists(j.result, 'deleted_at') then j.result ->> 'path' end model
from jobs j
join lateral (
  select number, content from generations where job_id = j.id order by number desc limit 1
) n on true
left join lateral (
  select number, opened_at from generations
  where job_id = j.id and opened_at < :before order by number desc limit 1
) g on true
where j.collected_generation < {ALL} and j.id > :after and (
  j.finished_at < :before
  or (j.finished_at is null and g.number > greatest(j.collected_generation, 1))
)
order by j.id limit :limit
""")  # noqa: S608 - a constant, spelt out: the index for it is partial


@dataclass(frozen=True, kw_only=True)
class RetentionTask:
    """A job, and which of its folders are garbage unless HEAD names them."""

    job_id: str
    is_over: bool
    newest: int  # number of the job's newest generation
    generation: int  # files of older ones are garbage; of an ended job, all
    opened_at: datetime  # when `generation` was opened
    loaded: str  # the folder that the newest generation started from
    deleted: str | None = None  # the folder of a model that its user has deleted
    model: str | None = None  # the folder of the job's model, even if HEAD lacks it


async def due(
    conn: AsyncConnection, *, before: datetime, after: str, limit: int
) -> list[RetentionTask]:
    """Return jobs with garbage to collect, by id, beyond ``after``; ``before``: opened or ended."""
    parameters = {"before": before, "after": after, "limit": limit}
    return [RetentionTask(**row) for row in (await conn.execute(_DUE, parameters)).mappings()]


async def record_collected(conn: AsyncConnection, task: RetentionTask) -> None:
    """Record that the garbage of ``task`` is collected."""
    number = ALL if task.is_over else task.generation
    statement = update(jobs).where(jobs.c.id == task.job_id)
    await conn.execute(statement.values(collected_generation=number))
