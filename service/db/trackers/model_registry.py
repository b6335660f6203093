"""Which final models are to be registered elsewhere; that one was is a member of its result."""

from typing import Any

from sqlalchemy import not_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.jobs.jobs import JobRow, parsed
from service.db.schema.tables import jobs
from service.domain.states import JobState

MEMBER = "registered_model"  # of a job's result; null: it was given up
_COLUMNS = [jobs.c[name] for name in JobRow.__dataclass_fields__]
_OPEN = (not_(jobs.c.result.has_key(MEMBER)), not_(jobs.c.result.has_key("deleted_at")))


async def unregistered(conn: AsyncConnection, limit: int) -> list[JobRow]:
    """The oldest jobs whose final model is to be registered, and neither is nor was given up."""
    wanted = text("""request @> '{"register_model": true}'""")  # as the index says it
    query = select(*_COLUMNS).where(jobs.c.state == JobState.SUCCEEDED, wanted, *_OPEN)
    return [parsed(r) for r in await conn.execute(query.order_by(jobs.c.id).limit(limit))]


async def settle(conn: AsyncConnection, job_id: str, registered: dict[str, Any] | None) -> bool:
    """Keep under which name it is registered (None: given up); False: somebody else did."""
    result = jobs.c.result.concat({MEMBER: registered})
    mine = update(jobs).where(jobs.c.id == job_id, *_OPEN).returning(jobs.c.id)
    return (await conn.execute(mine.values(result=result))).one_or_none() is not None
