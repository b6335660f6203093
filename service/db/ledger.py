"""What machines cost: a row per machine and price interval, opened and closed by what ARM says."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.tables import ledger
from service.domain.cost import LedgerRow


async def meter(
    conn: AsyncConnection,
    job_id: str,
    attempt_id: str,
    vm_ids: Sequence[str],
    hourly: Decimal,
    on_demand_hourly: Decimal,
    now: datetime,
    *,
    since: datetime,
) -> None:
    """Open a row for every machine newly seen, close those of machines no longer there.

    A new row begins at ``since``: a machine costs before it is first seen. Another replica's
    clock may be ahead of ours: a row never ends before it has started.
    """
    c = ledger.c
    gone = update(ledger).where(
        c.attempt_id == attempt_id, c.ended_at.is_(None), c.vm_id.not_in(vm_ids)
    )
    await conn.execute(gone.values(ended_at=func.greatest(now, c.started_at)))
    if vm_ids:
        rows = [
            {
                "job_id": job_id,
                "attempt_id": attempt_id,
                "vm_id": vm_id,
                "started_at": since,
                "hourly": hourly,
                "on_demand_hourly": on_demand_hourly,
            }
            for vm_id in vm_ids
        ]
        await conn.execute(upsert(ledger).values(rows).on_conflict_do_nothing())


async def of_job(conn: AsyncConnection, job_id: str) -> list[LedgerRow]:
    """Every row of the job, oldest first."""
    query = select(ledger).where(ledger.c.job_id == job_id).order_by(ledger.c.id)
    names = list(LedgerRow.__dataclass_fields__)
    return [LedgerRow(**{n: r[n] for n in names}) for r in (await conn.execute(query)).mappings()]
