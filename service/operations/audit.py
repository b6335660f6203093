"""The audit: lists the cloud, then reads the rows, in this order and in no transaction."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.cloud.provider import ATTEMPT_TAG, JOB_TAG, CloudError, CloudProvider
from service.db.tables import attempts
from service.domain import audit
from service.domain.audit import Found, Owner
from service.domain.errors import ServiceUnavailable
from service.domain.states import AttemptState


async def take(engine: AsyncEngine, cloud: CloudProvider, now: datetime) -> list[Found]:
    """What is there or should be, by name. Raises ServiceUnavailable."""
    try:
        there = await cloud.list_owned()  # first: a row is older than its set
        strays = await cloud.list_tagged()
    except CloudError as fault:
        raise ServiceUnavailable(
            f"Azure cannot be listed, so nobody knows what exists: {fault}"
        ) from fault
    tagged = {s.tags.get(ATTEMPT_TAG, "") for s in there} - {""}
    async with engine.connect() as conn:
        owners = await _owners(conn, tagged)
    tags = {"attempt_tag": ATTEMPT_TAG, "job_tag": JOB_TAG}
    return audit.audit(there, owners, now, strays=strays, **tags)


async def _owners(conn: AsyncConnection, tagged: Collection[str]) -> dict[str, Owner]:
    """Attempts that are not ended, and those that a scale set says it belongs to."""
    c = attempts.c
    query = select(attempts).where(or_(c.state != AttemptState.ENDED, c.id.in_(tagged)))
    return {
        r.id: Owner(
            attempt_id=r.id,
            job_id=r.job_id,
            state=AttemptState(r.state),
            since=r.since,
            region=r.region,
            vm_size=r.vm_size,
            instance_count=r.instance_count,
            hourly=r.hourly,
        )
        for r in await conn.execute(query)
    }
