"""Read and write registrations of final models, which are members of jobs' results."""

from typing import Any

from sqlalchemy import not_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.jobs.jobs import JobRow, parse_row
from service.db.schema.tables import jobs
from service.domain.states import JobState

MEMBER = "registered_model"  # of a job's result; null: registration was given up
_COLUMNS = [jobs.c[name] for name in JobRow.__dataclass_fields__]
_OPEN = (not_(jobs.c.result.has_key(MEMBER)), not_(jobs.c.result.has_key("deleted_at")))


async def unregistered(conn: AsyncConnection, limit: int) -> list[JobRow]:
    """Return the oldest jobs whose final model is still to be registered."""
    condition = text("""request @> '{"register_model": true}'""")  # spelled as in the partial index
    query = select(*_COLUMNS).where(jobs.c.state == JobState.SUCCEEDED, condition, *_OPEN)
    return [parse_row(r) for r in await conn.execute(query.order_by(jobs.c.id).limit(limit))]


async def settle(conn: AsyncConnection, job_id: str, registered: dict[str, Any] | None) -> bool:
    """Record the registered model (None: given up); return False if it was settled before."""
    result = jobs.c.result.concat({MEMBER: registered})
    statement = update(jobs).where(jobs.c.id == job_id, *_OPEN).returning(jobs.c.id)
    return (await conn.execute(statement.values(result=result))).one_or_none() is not None
