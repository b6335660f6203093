"""Read the state that Prometheus scrapes, in one statement over partial indexes."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

_OFFERING_LABELS = "array[a.region, a.vm_size, a.capacity_type]"
_DUE = """
select 'rekindle_due_lag_seconds', array['{table}'],
  coalesce(extract(epoch from :now - min(due_at)), 0)
from {table} where {live} and due_at < :now
  and (lease_expires_at is null or lease_expires_at < :now)
"""
_STATE = text(f"""
select 'rekindle_jobs' as name, array[state] as labels, count(*)::float8 as value
from jobs where finished_at is null group by state
union all
select 'rekindle_queue_jobs', array[priority], count(*)
from queue where waits_since is not null group by priority
union all
select 'rekindle_queue_oldest_wait_seconds', array[]::text[],
  coalesce(extract(epoch from :now - min(waits_since)), 0)
from queue where waits_since is not null
union all
select 'rekindle_attempts', array[state, engine] || {_OFFERING_LABELS}, count(*)
from attempts a where state <> 'ended' group by state, engine, region, vm_size, capacity_type
union all
select 'rekindle_attempt_oldest_seconds', array[state], extract(epoch from :now - min(since))
from attempts where state <> 'ended' group by state
union all
select bought.name, bought.labels, bought.value from (
  select {_OFFERING_LABELS} as labels, count(*)::float8 as machines,
    sum(l.hourly)::float8 as hourly, sum(l.on_demand_hourly)::float8 as on_demand
  from ledger l join attempts a on a.id = l.attempt_id
  where l.ended_at is null group by a.region, a.vm_size, a.capacity_type
) held cross join lateral (values
  ('rekindle_machines', held.labels, held.machines),
  ('rekindle_dollars_per_hour', held.labels, held.hourly),
  ('rekindle_on_demand_dollars_per_hour', held.labels, held.on_demand)
) as bought (name, labels, value)
union all
select 'rekindle_nodes', array[case
    when n.unhealthy_at > 0 then 'unhealthy'
    when n.evicting then 'evicting'
    when n.heard_at < :now - interval '1 minute' then 'silent'
    else n.phase end] as labels, count(*)
from nodes n join attempts a on a.id = n.attempt_id
where a.state in ('starting', 'running') group by labels
union all {_DUE.format(table="jobs", live="state not in ('succeeded', 'failed', 'cancelled')")}
union all {_DUE.format(table="attempts", live="state <> 'ended'")}
union all
select 'rekindle_scale_sets', array[listed.value ->> 0], count(*)
from cloud_listings, jsonb_each(sets) listed group by listed.value ->> 0
union all
select 'rekindle_scale_sets_list_age_seconds', array[]::text[],
  extract(epoch from :now - max(listed_at))
from cloud_listings having max(listed_at) is not null
union all
select 'rekindle_azure_circuit_open', array[region],
  case when shut_until > :now then 1 else 0 end
from cloud_circuits
""")  # noqa: S608 - constants


class MetricSample(NamedTuple):
    """One value of a metric, with its labels."""

    name: str
    labels: Sequence[str]
    value: float


async def read_samples(conn: AsyncConnection, now: datetime) -> list[MetricSample]:
    """Return every sample that is not zero, and those without labels."""
    rows = await conn.execute(_STATE, {"now": now})
    return [MetricSample(row.name, row.labels, float(row.value)) for row in rows]
