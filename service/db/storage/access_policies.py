"""Read and write access policies: until when attempts' nodes may write to their container."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import case, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.schema.tables import attempts
from service.domain.states import AttemptState


async def due(conn: AsyncConnection, before: datetime, limit: int) -> list[str]:
    """Return jobs with a policy to revoke or to issue; those to revoke come first.

    A policy is revoked when its attempt has ended, and renewed when it ends ``before`` this time.
    """
    c = attempts.c
    has_ended = c.state == AttemptState.ENDED
    wanting = ~has_ended & (c.access_until.is_(None) | (c.access_until < before))
    query = (
        select(c.job_id)
        .where(or_(has_ended & c.access_until.is_not(None), wanting))
        .order_by(case((has_ended, 0), else_=1))
        .limit(limit)
    )
    return list(dict.fromkeys((await conn.execute(query)).scalars()))


async def going_on(conn: AsyncConnection, job_id: str) -> list[str]:
    """Return the ids of the job's attempts that have not ended, newest first."""
    c = attempts.c
    query = select(c.id).where(c.job_id == job_id, c.state != AttemptState.ENDED)
    return list((await conn.execute(query.order_by(c.number.desc()))).scalars())


async def record(
    conn: AsyncConnection, job_id: str, attempt_ids: Collection[str], until: datetime
) -> None:
    """Record that these attempts have a policy until then, and the job's others none."""
    c = attempts.c
    is_listed = c.id.in_(attempt_ids)
    condition = or_(is_listed, c.access_until.is_not(None))
    values = {"access_until": case((is_listed, until), else_=None)}
    await conn.execute(update(attempts).where(c.job_id == job_id, condition).values(values))
