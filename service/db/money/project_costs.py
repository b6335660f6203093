"""Sum what a project's jobs cost by time bucket, and the same machine time on demand."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.money.metered_cost import NOW, machine_cost, storage_cost

_OF_BUCKET = {"since": "b.starts", "until": f"b.ends, {NOW}"}
_OVERLAPS = f"started_at < b.ends and coalesce(ended_at, {NOW}) > b.starts"
_QUERY = f"""
with b as (
  select starts, starts + make_interval(secs => :width) ends
  from generate_series(cast(:since as timestamptz), cast(:until as timestamptz)
    - interval '1 microsecond', make_interval(secs => :width)) starts
), held as materialized (  -- by attempts that were not over before: not a year's ledger
  select l.* from attempts a join jobs j on j.id = a.job_id join ledger l on l.attempt_id = a.id
  where j.project_id = :project
    and (a.ended_at is null or a.ended_at > cast(:since as timestamptz))
), stored as materialized (  -- likewise
  select l.* from storage_ledger l join jobs j on j.id = l.job_id
  where j.project_id = :project
    and (l.ended_at is null or l.ended_at > cast(:since as timestamptz))
)
select b.starts, b.ends,
  coalesce(m.spent, 0) machines, coalesce(m.on_demand, 0) on_demand, coalesce(s.kept, 0) storage
from b
left join lateral (
  select {machine_cost(**_OF_BUCKET)} spent,
    {machine_cost("on_demand_hourly", **_OF_BUCKET)} on_demand
  from held where {_OVERLAPS}
) m on true
left join lateral (
  select {storage_cost(**_OF_BUCKET)} kept from stored where {_OVERLAPS}
) s on true
order by b.starts
"""  # noqa: S608 - constants


@dataclass(frozen=True, kw_only=True)
class CostBucketRow:
    """Costs within one stretch of time, in US dollars."""

    starts: datetime
    ends: datetime
    machines: Decimal
    on_demand: Decimal  # the same machine time at that price
    storage: Decimal


async def by_bucket(
    conn: AsyncConnection,
    project_id: str,
    since: datetime,
    until: datetime,
    width: int,
    now: datetime,
) -> list[CostBucketRow]:
    """Return buckets of ``width`` seconds, oldest first, without charges for tier moves."""
    parameters = {"since": since, "until": until, "width": width, "project": project_id, "now": now}
    rows = await conn.execute(text(_QUERY), parameters)
    return [CostBucketRow(**row) for row in rows.mappings()]
