"""What machines cost: a row per machine and price interval, opened and closed by what ARM says."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.tables import ledger
from service.domain.cost import LedgerRow
from service.domain.fleet import Price


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

    The first row of a machine begins at ``since``: it costs before it is first seen. A machine
    that was gone and is back costs from now on: what it cost before stands in its first row.
    Another replica's clock may be ahead of ours: a row never ends before it has started.
    """
    c = ledger.c
    gone = update(ledger).where(
        c.attempt_id == attempt_id, c.ended_at.is_(None), c.vm_id.not_in(vm_ids)
    )
    await conn.execute(gone.values(ended_at=func.greatest(now, c.started_at)))
    known = await _known(conn, job_id, attempt_id)
    news = [vm_id for vm_id in vm_ids if not known.get(vm_id, False)]
    if news:
        rows = [
            {
                "job_id": job_id,
                "attempt_id": attempt_id,
                "vm_id": vm_id,
                "started_at": now if vm_id in known else since,
                "hourly": hourly,
                "on_demand_hourly": on_demand_hourly,
            }
            for vm_id in news
        ]
        await conn.execute(upsert(ledger).values(rows).on_conflict_do_nothing())


async def reprice(conn: AsyncConnection, attempt_id: str, price: Price, now: datetime) -> None:
    """From ``now`` on the attempt's machines cost this: their rows end and others begin.

    Locked are the attempt's rows only; who meters it at this moment has its row locked, and so
    waits for us or is waited for.
    """
    c = ledger.c
    mine = (c.attempt_id == attempt_id, c.ended_at.is_(None))
    ended_at = func.greatest(now, c.started_at)
    told = (c.job_id, c.vm_id, c.ended_at)
    closed = update(ledger).where(*mine).values(ended_at=ended_at).returning(*told)
    rows = [
        {"job_id": job_id, "attempt_id": attempt_id, "vm_id": vm_id, "started_at": at}
        | {"hourly": price.hourly, "on_demand_hourly": price.on_demand_hourly}
        for job_id, vm_id, at in await conn.execute(closed)
    ]
    if rows:
        await conn.execute(upsert(ledger).values(rows))


async def of_job(conn: AsyncConnection, job_id: str) -> list[LedgerRow]:
    """Every row of the job, oldest first."""
    query = select(ledger).where(ledger.c.job_id == job_id).order_by(ledger.c.id)
    names = list(LedgerRow.__dataclass_fields__)
    return [LedgerRow(**{n: r[n] for n in names}) for r in (await conn.execute(query)).mappings()]


async def _known(conn: AsyncConnection, job_id: str, attempt_id: str) -> dict[str, bool]:
    """The attempt's machines that have a row, and whether one of theirs is open."""
    c = ledger.c
    mine = (c.job_id == job_id, c.attempt_id == attempt_id)
    is_open = func.bool_or(c.ended_at.is_(None)).label("is_open")
    query = select(c.vm_id, is_open).where(*mine).group_by(c.vm_id)
    return {row.vm_id: row.is_open for row in await conn.execute(query)}
