"""Sum what a project's jobs cost by time bucket, and the same machine time on demand."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.domain.money.storage_cost import HOURS_PER_MONTH
from service.domain.storage.access_tiers import GIB

# Hours of a ledger row within a bucket.
_HOURS = """greatest(extract(epoch from least(coalesce(l.ended_at, :now), b.ends, :now)
  - greatest(l.started_at, b.starts)), 0) / 3600"""
_OVERLAPS = "l.started_at < b.ends and coalesce(l.ended_at, :now) > b.starts"
_QUERY = """
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
  select sum(hourly * {hours}) spent, sum(on_demand_hourly * {hours}) on_demand
  from held l where {overlaps}
) m on true
left join lateral (
  select sum(size * month * {hours}) / ({gib}.0 * {month}) kept
  from stored l where {overlaps}
) s on true
order by b.starts
"""


@dataclass(frozen=True, kw_only=True)
class Bucket:
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
) -> list[Bucket]:
    """Return buckets of ``width`` seconds, oldest first, without charges for tier moves."""
    now_given = "cast(:now as timestamptz)"
    hours, overlaps = (s.replace(":now", now_given) for s in (_HOURS, _OVERLAPS))
    sums = {"hours": hours, "overlaps": overlaps, "gib": GIB, "month": HOURS_PER_MONTH}
    given = {"since": since, "until": until, "width": width, "project": project_id, "now": now}
    rows = await conn.execute(text(_QUERY.format(**sums)), given)
    return [Bucket(**row) for row in rows.mappings()]
