"""Tokens and circuits, shared by all replicas. One short transaction each, never over a call."""

from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.schema.cloud_tables import cloud_circuits, cloud_tokens
from service.domain.cloud import politeness
from service.domain.cloud.politeness import Bucket, Circuit, Kind, Limit, Taken


async def take(
    conn: AsyncConnection, region: str, kind: Kind, limit: Limit, now: datetime
) -> Taken:
    """A block of tokens, or none."""
    taken = politeness.take(limit, await _locked(conn, region, kind, limit, now), limit.block, now)
    await _save(conn, region, kind, taken.bucket)
    return taken


async def answered(
    conn: AsyncConnection, region: str, kind: Kind, limit: Limit, remaining: int, now: datetime
) -> None:
    """Azure says that so many are left; other processes may hold a block each."""
    bucket = await _locked(conn, region, kind, limit, now)
    await _save(conn, region, kind, politeness.corrected(bucket, remaining, limit.block))


async def circuit(conn: AsyncConnection, region: str) -> Circuit:
    """The region's."""
    c = cloud_circuits.c
    query = select(c.failures, c.shut_until).where(c.region == region)
    row = (await conn.execute(query)).one_or_none()
    return Circuit(failures=row.failures, shut_until=row.shut_until) if row else Circuit()


async def failed(
    conn: AsyncConnection, region: str, now: datetime, jitter: float, *, probed: bool
) -> Circuit:
    """Count a failure; from some on the region is shut.

    While it is shut only that of the probe counts: others were under way before.
    """
    c = cloud_circuits.c
    await conn.execute(upsert(cloud_circuits).values(region=region).on_conflict_do_nothing())
    query = select(c.failures, c.shut_until).where(c.region == region).with_for_update()
    row = (await conn.execute(query)).one()
    before = Circuit(failures=row.failures, shut_until=row.shut_until)
    late = before.is_shut(now) and not probed
    after = before if late else politeness.failed(before, now, jitter)
    await conn.execute(update(cloud_circuits).where(c.region == region).values(vars(after)))
    return after


async def probe(conn: AsyncConnection, region: str, now: datetime) -> bool:
    """True for the one who is to find out whether a shut region answers again."""
    c = cloud_circuits.c
    ended = (c.shut_until <= now) | (c.shut_until > now + politeness.FAR)
    over = update(cloud_circuits).where(c.region == region, ended)
    taken = await conn.execute(over.values(shut_until=now + politeness.PROBE).returning(c.region))
    return taken.one_or_none() is not None


async def succeeded(conn: AsyncConnection, region: str) -> None:
    """It answers: all is forgotten."""
    c = cloud_circuits.c
    mine = update(cloud_circuits).where(c.region == region, c.failures > 0)
    await conn.execute(mine.values(failures=0, shut_until=None))


async def _locked(
    conn: AsyncConnection, region: str, kind: Kind, limit: Limit, now: datetime
) -> Bucket:
    c = cloud_tokens.c
    fresh = {"region": region, "kind": kind, **vars(politeness.full(limit, now))}
    await conn.execute(upsert(cloud_tokens).values(fresh).on_conflict_do_nothing())
    query = select(c.tokens, c.at).where(c.region == region, c.kind == kind).with_for_update()
    row = (await conn.execute(query)).one()
    return Bucket(tokens=row.tokens, at=row.at)


async def _save(conn: AsyncConnection, region: str, kind: Kind, bucket: Bucket) -> None:
    c = cloud_tokens.c
    mine = update(cloud_tokens).where(c.region == region, c.kind == kind)
    await conn.execute(mine.values(vars(bucket)))
