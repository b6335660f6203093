"""Summarize a project: states of its jobs, hourly cost, and today's evictions."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.domain.states import JobState

# The index of ends keeps attempts that ended before today out of the query.
_QUERY = text("""
with mine as (select id, state from jobs where project_id = :project),
lately as materialized (
  select a.id, a.outcome, a.over_at, a.outlived from mine j join attempts a on a.job_id = j.id
  where a.state <> 'ended' or a.ended_at >= :today
), meters as (
  select sum(l.hourly) per_hour, sum(l.on_demand_hourly) on_demand_per_hour
  from lately a join ledger l on l.attempt_id = a.id where l.ended_at is null
)
select
  (select jsonb_object_agg(state, n)
    from (select state, count(*) n from mine group by state) s) jobs,
  (select per_hour from meters), (select on_demand_per_hour from meters),
  (select count(*) filter (where outcome = 'evicted' and over_at >= :today)
    + coalesce(sum((select count(*) from unnest(outlived) at where at >= :today)), 0)
    from lately) evictions,
  (select sum(g.lost_steps) from lately a join generations g on g.attempt_id = a.id
    where g.opened_at >= :today) lost_steps
""")


@dataclass(frozen=True, kw_only=True)
class ProjectSummary:
    """The project's jobs, its machines of this moment, and evictions since midnight."""

    jobs: Mapping[JobState, int]  # states without jobs are missing
    per_hour: Decimal
    on_demand_per_hour: Decimal
    evictions: int
    lost_steps: int


async def summarize_project(
    conn: AsyncConnection, project_id: str, today: datetime
) -> ProjectSummary:
    """Return the summary; ``today`` is when the day began."""
    row = (await conn.execute(_QUERY, {"project": project_id, "today": today})).one()
    return ProjectSummary(
        jobs={JobState(state): count for state, count in (row.jobs or {}).items()},
        per_hour=row.per_hour or Decimal(0),
        on_demand_per_hour=row.on_demand_per_hour or Decimal(0),
        evictions=int(row.evictions),
        lost_steps=row.lost_steps or 0,
    )
