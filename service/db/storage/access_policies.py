"""Access policies of containers: which attempts' nodes may write to their job's, and until when."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import case, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.schema.tables import attempts
from service.domain.states import AttemptState


async def due(conn: AsyncConnection, before: datetime, limit: int) -> list[str]:
    """Jobs with an attempt that needs a policy, or one that is to be revoked; ended ones first.

    A policy that ends ``before`` this is renewed.
    """
    c = attempts.c
    over = c.state == AttemptState.ENDED
    wanting = ~over & (c.access_until.is_(None) | (c.access_until < before))
    query = (
        select(c.job_id)
        .where(or_(over & c.access_until.is_not(None), wanting))
        .order_by(case((over, 0), else_=1))
        .limit(limit)
    )
    return list(dict.fromkeys((await conn.execute(query)).scalars()))


async def going_on(conn: AsyncConnection, job_id: str) -> list[str]:
    """The job's attempts that are not ended, newest first."""
    c = attempts.c
    query = select(c.id).where(c.job_id == job_id, c.state != AttemptState.ENDED)
    return list((await conn.execute(query.order_by(c.number.desc()))).scalars())


async def record(
    conn: AsyncConnection, job_id: str, attempt_ids: Collection[str], until: datetime
) -> None:
    """These have a policy that ends then, and no other attempt of the job has one."""
    c = attempts.c
    has = c.id.in_(attempt_ids)
    touched = or_(has, c.access_until.is_not(None))
    values = {"access_until": case((has, until), else_=None)}
    await conn.execute(update(attempts).where(c.job_id == job_id, touched).values(values))
