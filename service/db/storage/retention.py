"""Whose checkpoints may have left garbage behind, and how far it was collected."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.schema.tables import jobs

ALL = 2**31 - 1  # collected_generation of a job that is over and has no garbage any more

# Each generation leaves what it had not committed; the last one's is garbage when the job is over.
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
class Due:
    """A job, and what of it is garbage if HEAD does not name it."""

    job_id: str
    is_over: bool
    newest: int  # generation of the job
    generation: int  # what is of an older one is garbage; of a job that is over, all
    opened_at: datetime  # when that one was opened
    loaded: str  # the folder that the newest generation started from
    deleted: str | None = None  # the folder of a model that its user has deleted
    model: str | None = None  # the folder of the job's model, whatever HEAD says by now


async def due(conn: AsyncConnection, *, before: datetime, after: str, limit: int) -> list[Due]:
    """Jobs with a generation that was opened ``before``, by id, from behind ``after`` on."""
    given = {"before": before, "after": after, "limit": limit}
    return [Due(**row) for row in (await conn.execute(_DUE, given)).mappings()]


async def collected(conn: AsyncConnection, found: Due) -> None:
    """Nothing is left of what was due."""
    number = ALL if found.is_over else found.generation
    mine = update(jobs).where(jobs.c.id == found.job_id)
    await conn.execute(mine.values(collected_generation=number))
