"""Read and write what Azure billed, and sum our ledger over the same days."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from sqlalchemy import case, delete, exists, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.money.metered_cost import NOW, machine_cost, metered_hours
from service.db.schema.market_tables import bills, market_looks
from service.db.schema.tables import attempts, jobs
from service.domain.money.billing_reconciliation import (
    UNTAGGED,
    BilledDay,
    MeteredDay,
    merge_rows,
    start_of_day,
)

READ_NAME = "bills"
_b, _looks = bills.c, market_looks.c
_OF_DAY = {"since": "d.starts", "until": f"d.ends, {NOW}"}
_QUERY = f"""
with d as (
  select starts, starts + make_interval(secs => 86400) ends
  from generate_series(cast(:since as timestamptz), cast(:until as timestamptz)
    - interval '1 microsecond', make_interval(secs => 86400)) starts
)
select (d.starts at time zone 'UTC')::date as day, attempt_id,
  sum({metered_hours(**_OF_DAY)}) as hours, {machine_cost(**_OF_DAY)} as amount
from d join ledger on started_at < least(d.ends, {NOW}) and coalesce(ended_at, {NOW}) > d.starts
where attempt_id in (
  select a.id from attempts a join jobs j on j.id = a.job_id
  where j.project_id = :project and (a.ended_at is null or a.ended_at > :since)
)
group by 1, 2
"""  # noqa: S608 - constants


@dataclass(frozen=True, kw_only=True)
class BillReadState:
    """State of reading Azure's bill: last success, first day covered, last failure."""

    told_at: datetime | None = None
    first_day: date | None = None
    trouble: str = ""
    trouble_at: datetime | None = None


async def save(
    conn: AsyncConnection, rows: Collection[BilledDay], since: date, until: date, now: datetime
) -> None:
    """Replace all bills of these days, both included."""
    await conn.execute(delete(bills).where(_b.day >= since, _b.day <= until))
    if rows:
        # One statement per row: one for very many rows would have too many parameters.
        await conn.execute(
            insert(bills), [vars(row) | {"seen_at": now} for row in merge_rows(rows)]
        )
    first = func.least(_looks.first_day, since)  # which leaves null out
    await conn.execute(update(market_looks).where(_looks.what == READ_NAME).values(first_day=first))


async def read_state(conn: AsyncConnection) -> BillReadState:
    """Return the state of reading the bill; empty before the first read."""
    names = list(BillReadState.__dataclass_fields__)
    query = select(*(_looks[name] for name in names)).where(_looks.what == READ_NAME)
    row = (await conn.execute(query)).mappings().one_or_none()
    return BillReadState(**row) if row else BillReadState()


async def of_project(
    conn: AsyncConnection, project_id: str, since: date, until: date
) -> list[BilledDay]:
    """Return what the project's attempts were billed, both days included."""
    attempt_ids = (
        select(attempts.c.id)
        .join(jobs, jobs.c.id == attempts.c.job_id)
        .where(jobs.c.project_id == project_id)
    )
    names = list(BilledDay.__dataclass_fields__)
    query = select(*(_b[name] for name in names)).where(
        _b.day >= since, _b.day <= until, _b.attempt_id.in_(attempt_ids)
    )
    return [BilledDay(**row) for row in (await conn.execute(query)).mappings()]


async def unattributed(conn: AsyncConnection, since: date, until: date) -> list[BilledDay]:
    """Return bills of no project: UNTAGGED, and tags of unknown attempts as ""; dearest first."""
    has_attempt = exists().where(attempts.c.id == _b.attempt_id)
    owner = case((_b.attempt_id == UNTAGGED, UNTAGGED), else_="").label("attempt_id")
    sums = (func.sum(_b.quantity).label("quantity"), func.sum(_b.amount).label("amount"))
    query = (
        select(func.min(_b.day).label("day"), owner, _b.category, *sums)
        .where(_b.day >= since, _b.day <= until, ~has_attempt)
        .group_by(owner, _b.category)
        .order_by(func.sum(_b.amount).desc())
    )
    return [BilledDay(**row) for row in (await conn.execute(query)).mappings()]


async def metered(
    conn: AsyncConnection, project_id: str, since: date, until: date, now: datetime
) -> list[MeteredDay]:
    """Return hours and amounts by our ledger for the project's attempts, both days included."""
    end = start_of_day(until) + timedelta(days=1)
    parameters = {"since": start_of_day(since), "until": end, "project": project_id, "now": now}
    rows = await conn.execute(text(_QUERY), parameters)
    return [MeteredDay(**row) for row in rows.mappings()]
