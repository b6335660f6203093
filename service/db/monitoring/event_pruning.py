"""Delete events and metrics of jobs that ended long ago, and old prices and bills.

Deletes some thousand rows at a time.
"""

from datetime import datetime
from enum import StrEnum

from sqlalchemy import delete, text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.schema.market_tables import bills, spot_prices

ROWS = 5000  # per transaction, so that it holds its locks for milliseconds


class PrunedTable(StrEnum):
    """Tables whose rows are pruned."""

    EVENTS = "events"
    METRICS = "metrics"


_DUE = {
    rows: text(
        f"select id from jobs where finished_at is not null and not {rows}_pruned"  # noqa: S608 - an enum
        " and finished_at < :before order by finished_at limit :limit"
    )
    for rows in PrunedTable
}
_DELETE = {
    rows: text(
        f"delete from {rows} where ctid = any(array("  # noqa: S608 - an enum
        f"select ctid from {rows} where job_id = :job_id limit {ROWS}))"
    )
    for rows in PrunedTable
}
_PRUNED = {
    rows: text(
        f"update jobs set {rows}_pruned = true where id = :job_id"  # noqa: S608 - an enum
        f" and not exists (select from {rows} where job_id = :job_id)"
    )
    for rows in PrunedTable
}


async def jobs_to_prune(
    conn: AsyncConnection, rows: PrunedTable, before: datetime, limit: int
) -> list[str]:
    """Return jobs that ended ``before`` and are not pruned of ``rows`` yet, oldest first."""
    result = await conn.execute(_DUE[rows], {"before": before, "limit": limit})
    return list(result.scalars())


async def delete_some(conn: AsyncConnection, rows: PrunedTable, job_id: str) -> bool:
    """Delete up to ``ROWS`` rows of the job; return True and mark it if none is left."""
    done = await conn.execute(_DELETE[rows], {"job_id": job_id})
    if done.rowcount == ROWS:
        return False
    # A concurrent pruner may still be deleting rows: then this does not mark the job.
    return bool((await conn.execute(_PRUNED[rows], {"job_id": job_id})).rowcount)


async def delete_market_rows(conn: AsyncConnection, before: datetime) -> None:
    """Delete prices and bills that Azure has not reported since ``before``."""
    await conn.execute(delete(spot_prices).where(spot_prices.c.seen_at < before))
    # A row is seen on its day or later, so limiting the days loses none and reads fewer rows.
    old = (bills.c.day <= before.date(), bills.c.seen_at < before)
    await conn.execute(delete(bills).where(*old))
