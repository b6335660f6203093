"""Meter machines: a row per machine and price interval, opened and closed by ARM's reports."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.schema.columns import among
from service.db.schema.tables import attempts, ledger
from service.domain.cloud.fleet import Price
from service.domain.money.cost import LedgerRow
from service.domain.states import AttemptState

_CLOSE = text("""
with there as (
  select * from unnest(cast(:of as text[]), cast(:vms as text[])) as t (attempt_id, vm_id)
), gone as (
  select id from ledger l
  where attempt_id = any(:ids) and ended_at is null and not exists (
    select from there t where t.attempt_id = l.attempt_id and t.vm_id = l.vm_id
  )
  order by id for no key update
)
update ledger l set ended_at = greatest(:now, started_at) from gone where l.id = gone.id
""")


# Six parameters for any number of machines: a statement has room for 65,535.
_OPEN = text("""
insert into ledger (job_id, attempt_id, vm_id, started_at, hourly, on_demand_hourly)
select * from unnest(
  cast(:job_id as text[]), cast(:attempt_id as text[]), cast(:vm_id as text[]),
  cast(:started_at as timestamptz[]), cast(:hourly as numeric[]),
  cast(:on_demand_hourly as numeric[])
)
on conflict do nothing
""")
_OPEN_COLUMNS = ("job_id", "attempt_id", "vm_id", "started_at", "hourly", "on_demand_hourly")


@dataclass(frozen=True, kw_only=True)
class ExistingMachines:
    """The machines of one attempt that exist at a moment, and what one of them costs."""

    job_id: str
    attempt_id: str
    vm_ids: Sequence[str]
    price: Price
    since: datetime  # start of a machine's first row: it costs before it is seen


async def meter(conn: AsyncConnection, machines: Sequence[ExistingMachines], now: datetime) -> None:
    """Open a row for every machine newly seen, and close the rows of machines that are gone.

    A machine that is back after a gap costs from now on; its earlier row stays. Another replica's
    clock may be ahead of ours: a row never ends before it has started.
    """
    pairs = [(group.attempt_id, vm_id) for group in machines for vm_id in group.vm_ids]
    parameters: dict[str, object] = {"ids": [group.attempt_id for group in machines], "now": now}
    parameters |= {
        "of": [attempt_id for attempt_id, _ in pairs],
        "vms": [vm_id for _, vm_id in pairs],
    }
    await conn.execute(_CLOSE, parameters)
    is_open = await _metered_machines(conn, sorted({attempt_id for attempt_id, _ in pairs}))
    rows = [
        (
            group.job_id,
            group.attempt_id,
            vm_id,
            since,
            group.price.hourly,
            group.price.on_demand_hourly,
        )
        for group in machines
        for vm_id in group.vm_ids
        if not is_open.get((group.attempt_id, vm_id), False)
        for since in [now if (group.attempt_id, vm_id) in is_open else group.since]
    ]
    await _open(conn, rows)


async def reprice(conn: AsyncConnection, attempt_id: str, price: Price, now: datetime) -> None:
    """Change the price of the attempt's machines from ``now`` on: close open rows, open new ones.

    Locks the attempt's ledger rows only. A concurrent ``meter`` holds the attempt's row, so one
    waits for the other.
    """
    c = ledger.c
    conditions = (c.attempt_id == attempt_id, c.ended_at.is_(None))
    ended_at = func.greatest(now, c.started_at)
    columns = (c.job_id, c.vm_id, c.ended_at)
    statement = update(ledger).where(*conditions).values(ended_at=ended_at).returning(*columns)
    prices = (price.hourly, price.on_demand_hourly)
    ended = await conn.execute(statement)
    await _open(conn, [(job_id, attempt_id, vm_id, at, *prices) for job_id, vm_id, at in ended])


async def of_job(conn: AsyncConnection, job_id: str) -> list[LedgerRow]:
    """Return every ledger row of the job, oldest first."""
    query = select(ledger).where(ledger.c.job_id == job_id).order_by(ledger.c.id)
    names = list(LedgerRow.__dataclass_fields__)
    return [LedgerRow(**{n: r[n] for n in names}) for r in (await conn.execute(query)).mappings()]


async def open_after_the_end(conn: AsyncConnection) -> set[str]:
    """Return the ids of ended attempts that still have an open row."""
    c = ledger.c
    query = select(c.attempt_id).join(attempts, attempts.c.id == c.attempt_id).distinct()
    ended = query.where(c.ended_at.is_(None), attempts.c.state == AttemptState.ENDED)
    return set((await conn.execute(ended)).scalars())


async def _open(conn: AsyncConnection, rows: Sequence[tuple[object, ...]]) -> None:
    if rows:
        columns = zip(*rows, strict=True)
        await conn.execute(_OPEN, dict(zip(_OPEN_COLUMNS, map(list, columns), strict=True)))


async def _metered_machines(
    conn: AsyncConnection, attempt_ids: Sequence[str]
) -> dict[tuple[str, str], bool]:
    """Return machines of these attempts that have a row, and whether one is open."""
    c = ledger.c
    is_open = func.bool_or(c.ended_at.is_(None)).label("is_open")
    query = select(c.attempt_id, c.vm_id, is_open).where(among(c.attempt_id, attempt_ids))
    rows = await conn.execute(query.group_by(c.attempt_id, c.vm_id))
    return {(row.attempt_id, row.vm_id): row.is_open for row in rows}
