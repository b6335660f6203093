"""Deleting what was told of jobs that have long been over, some thousand rows at a time.

And what Azure told long ago.
"""

from datetime import datetime
from enum import StrEnum

from sqlalchemy import delete, text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.schema.market_tables import bills, spot_prices

ROWS = 5000  # in one transaction: it holds its locks for milliseconds


class Rows(StrEnum):
    """What is pruned."""

    EVENTS = "events"
    METRICS = "metrics"


_DUE = {
    rows: text(
        f"select id from jobs where finished_at is not null and not {rows}_pruned"  # noqa: S608 - an enum
        " and finished_at < :before order by finished_at limit :limit"
    )
    for rows in Rows
}
_DELETE = {
    rows: text(
        f"delete from {rows} where ctid = any(array("  # noqa: S608 - an enum
        f"select ctid from {rows} where job_id = :job_id limit {ROWS}))"
    )
    for rows in Rows
}
_PRUNED = {
    rows: text(
        f"update jobs set {rows}_pruned = true where id = :job_id"  # noqa: S608 - an enum
        f" and not exists (select from {rows} where job_id = :job_id)"
    )
    for rows in Rows
}


async def due(conn: AsyncConnection, rows: Rows, before: datetime, limit: int) -> list[str]:
    """Jobs that were over ``before`` and have such rows still, the oldest first."""
    found = await conn.execute(_DUE[rows], {"before": before, "limit": limit})
    return list(found.scalars())


async def some(conn: AsyncConnection, rows: Rows, job_id: str) -> bool:
    """Delete some of the job's; True when none is left, which is written down."""
    done = await conn.execute(_DELETE[rows], {"job_id": job_id})
    if done.rowcount == ROWS:
        return False
    # Of two who prune the same job one deletes none of what the other is deleting still.
    return bool((await conn.execute(_PRUNED[rows], {"job_id": job_id})).rowcount)


async def told(conn: AsyncConnection, before: datetime) -> None:
    """Delete prices and bills that Azure has not told since; those that hold are told again."""
    await conn.execute(delete(spot_prices).where(spot_prices.c.seen_at < before))
    # No day is billed before it has come; and so only these days' rows are looked at.
    old = (bills.c.day <= before.date(), bills.c.seen_at < before)
    await conn.execute(delete(bills).where(*old))
