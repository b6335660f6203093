"""Read and write the circuit breakers of regions, which all replicas share."""

from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.schema.cloud_tables import cloud_circuits
from service.domain.cloud import circuit_breaker
from service.domain.cloud.circuit_breaker import Circuit


async def find(conn: AsyncConnection, region: str, *, lock: bool = False) -> Circuit:
    """Return the region's circuit."""
    c = cloud_circuits.c
    query = select(c.failures, c.shut_until).where(c.region == region)
    query = query.with_for_update() if lock else query
    row = (await conn.execute(query)).one_or_none()
    return Circuit(failures=row.failures, shut_until=row.shut_until) if row else Circuit()


async def record_failure(
    conn: AsyncConnection, region: str, now: datetime, jitter: float, *, probed: bool
) -> Circuit:
    """Count a failure, and open the circuit after some; return it.

    While it is open only the probe's failure counts: other calls were under way before.
    """
    c = cloud_circuits.c
    await conn.execute(upsert(cloud_circuits).values(region=region).on_conflict_do_nothing())
    before = await find(conn, region, lock=True)
    late = before.is_shut(now) and not probed
    after = before if late else circuit_breaker.after_failure(before, now, jitter)
    await conn.execute(update(cloud_circuits).where(c.region == region).values(vars(after)))
    return after


async def claim_probe(conn: AsyncConnection, region: str, now: datetime) -> bool:
    """Claim the probe of a region whose pause is over; return True to one caller."""
    c = cloud_circuits.c
    ended = (c.shut_until <= now) | (c.shut_until > now + circuit_breaker.FAR)
    statement = update(cloud_circuits).where(c.region == region, ended)
    probing_until = now + circuit_breaker.PROBE
    claimed = await conn.execute(statement.values(shut_until=probing_until).returning(c.region))
    return claimed.one_or_none() is not None


async def record_success(conn: AsyncConnection, region: str) -> None:
    """Close the circuit."""
    c = cloud_circuits.c
    statement = update(cloud_circuits).where(c.region == region, c.failures > 0)
    await conn.execute(statement.values(failures=0, shut_until=None))
