"""Meter stored bytes: a row per tier and amount, opened and closed by Blob's listings."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import func, insert, select, text, true, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.core import leases
from service.db.core.leases import Claim
from service.db.schema.storage_tables import storage_ledger, storage_meters
from service.domain.money.storage_cost import LevelChange, StorageRow, TierLevel
from service.domain.storage.access_tiers import AccessTier

_DUE = leases.due(storage_meters, true())
_BEGIN = text("""
insert into storage_meters (id, began_at, due_at) values (:id, :now, :now) on conflict do nothing
""")


async def start_metering(conn: AsyncConnection, job_id: str, now: datetime) -> None:
    """Begin to meter the job's container; do nothing if it is metered already."""
    await conn.execute(_BEGIN, {"id": job_id, "now": now})


async def make_due(conn: AsyncConnection, job_id: str, now: datetime) -> None:
    """Make the container due now: its cost has changed."""
    await leases.enqueue(conn, storage_meters, job_id, now)


async def claim_due(conn: AsyncConnection, now: datetime, limit: int) -> list[Claim]:
    """Lease up to ``limit`` containers that are due."""
    return await leases.claim_due(conn, _DUE, now, limit)


async def open_levels(conn: AsyncConnection, job_id: str) -> dict[AccessTier, TierLevel]:
    """Return the amount and price per tier of the job's open rows."""
    c = storage_ledger.c
    query = select(c.tier, c.size, c.month).where(c.job_id == job_id, c.ended_at.is_(None))
    rows = await conn.execute(query)
    return {AccessTier(r.tier): TierLevel(size=r.size, month=r.month) for r in rows}


async def record(
    conn: AsyncConnection,
    claim: Claim,
    changes: Sequence[LevelChange],
    now: datetime,
    due_at: datetime,
) -> None:
    """Write changes of a listing and release the lease, or raise LeaseLost and write nothing.

    Another replica's clock may be ahead of ours: a row never ends before it has started.
    """
    await leases.release(conn, claim, now, due_at, looked_at=now)
    c = storage_ledger.c
    for change in changes:
        conditions = (c.job_id == claim.row_id, c.tier == change.tier, c.ended_at.is_(None))
        ended_at = func.greatest(change.at, c.started_at)
        closed = update(storage_ledger).where(*conditions).values(ended_at=ended_at)
        ended = (await conn.execute(closed.returning(c.ended_at))).scalars()
        at = max([change.at, *ended])
        if change.level is not None:
            row = {"job_id": claim.row_id, "tier": change.tier, "started_at": at}
            row |= {"size": change.level.size, "month": change.level.month}
            await conn.execute(insert(storage_ledger).values(row))


async def postpone(conn: AsyncConnection, claim: Claim, now: datetime, due_at: datetime) -> None:
    """Release the lease of a container that could not be listed, or raise LeaseLost."""
    await leases.release(conn, claim, now, due_at)


async def of_job(conn: AsyncConnection, job_id: str) -> list[StorageRow]:
    """Return every row of the job, oldest first."""
    query = select(storage_ledger).where(storage_ledger.c.job_id == job_id)
    names = list(StorageRow.__dataclass_fields__)
    rows = (await conn.execute(query.order_by(storage_ledger.c.id))).mappings()
    return [StorageRow(**{n: r[n] for n in names} | {"tier": AccessTier(r["tier"])}) for r in rows]
