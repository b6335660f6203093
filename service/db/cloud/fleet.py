"""Read the fleet: live attempts with their nodes, capacity by offering, and the queue."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

MAX_ROWS = 500  # attempts, and queued jobs, that are read at once

# Booting machines have no node yet: their newest serial report is an event.
_ATTEMPTS = text("""
select a.id, a.job_id, j.project_id, j.request ->> 'suffix' as name, a.number, a.region, a.vm_size,
  a.capacity_type, a.engine, a.state, a.since, a.instance_count, a.hourly, a.on_demand_hourly,
  a.created_at, a.seen_at, jsonb_array_length(a.vm_ids) as running, m.per_hour,
  m.on_demand_per_hour, coalesce(n.nodes, '[]') as nodes, b.message as boot, b.at as boot_at
from attempts a join jobs j on j.id = a.job_id
left join lateral (
  select sum(hourly) per_hour, sum(on_demand_hourly) on_demand_per_hour from ledger
  where attempt_id = a.id and ended_at is null
) m on true
left join lateral (
  select jsonb_agg(jsonb_build_object('id', id, 'vm_id', vm_id, 'name', name, 'phase', phase,
    'step', step, 'generation', generation, 'evicting', evicting, 'error', error,
    'registered_at', extract(epoch from registered_at), 'heard_at', extract(epoch from heard_at),
    'unhealthy_at', nullif(unhealthy_at, 0)) order by name, id) nodes
  from nodes where attempt_id = a.id
) n on true
left join lateral (
  select message, at from events
  where job_id = a.job_id and attempt_id = a.id and code in ('node.booting', 'node.boot_failed')
    and a.state in ('provisioning', 'starting')
  order by seq desc limit 1
) b on true
where a.state <> 'ended' and (cast(:project as text) is null or j.project_id = :project)
order by a.created_at, a.id limit :most
""")
_CAPACITY = text("""
with mine as (
  select a.* from attempts a join jobs j on j.id = a.job_id
  where cast(:project as text) is null or j.project_id = :project
)
select o.region, o.vm_size, o.capacity_type, o.engine, s.since, s.ends_at, s.in_a_row, s.reason,
  s.nodes short_of, r.machines, l.given_at, b.band, c.score
from unnest(cast(:regions as text[]), cast(:sizes as text[]), cast(:types as text[]),
  cast(:engines as text[])) o (region, vm_size, capacity_type, engine)
left join lateral (
  select max(created_at) given_at from attempts
  where (region, vm_size, capacity_type, engine) = (o.region, o.vm_size, o.capacity_type, o.engine)
    and ran_at is not null
) l on true
left join lateral (
  select sum(jsonb_array_length(vm_ids)) machines from mine
  where (region, vm_size, capacity_type, engine) = (o.region, o.vm_size, o.capacity_type, o.engine)
    and state <> 'ended'
) r on true
left join shortages s on (s.region, s.vm_size, s.capacity_type, s.engine)
  = (o.region, o.vm_size, o.capacity_type, o.engine)
left join lateral (
  select band from spot_bands where (region, vm_size) = (o.region, o.vm_size)
    and o.capacity_type = 'spot' order by since desc limit 1
) b on true
left join spot_scores c on (c.region, c.vm_size) = (o.region, o.vm_size)
  and o.capacity_type = 'spot'
order by o.region, o.vm_size, o.capacity_type, o.engine
""")
_WAITING = text("""
select q.job_id, q.project_id, q.priority, q.gpus, q.position, q.code, q.why, q.waits_since,
  j.request ->> 'suffix' as name
from queue q join jobs j on j.id = q.job_id
where q.waits_since is not null and (cast(:project as text) is null or q.project_id = :project)
order by q.position nulls last, q.waits_since, q.job_id limit :most
""")


@dataclass(frozen=True, kw_only=True)
class FleetRows:
    """Rows of one project's fleet or of all projects', as the queries return them."""

    capacity: Sequence[RowMapping]
    attempts: Sequence[RowMapping]
    waiting: Sequence[RowMapping]


async def read_fleet(
    conn: AsyncConnection, project: str | None, offerings: Sequence[tuple[str, ...]]
) -> FleetRows:
    """Return the offerings' capacity, live attempts and the queue, without a call to a cloud.

    ``project`` None: of all projects.
    """
    names = ("regions", "sizes", "types", "engines")
    columns = list(zip(*offerings, strict=True)) or [()] * len(names)
    parameters: dict[str, Any] = {"project": project, "most": MAX_ROWS}
    capacity_parameters = parameters | dict(zip(names, map(list, columns), strict=True))
    return FleetRows(
        capacity=(await conn.execute(_CAPACITY, capacity_parameters)).mappings().all(),
        attempts=(await conn.execute(_ATTEMPTS, parameters)).mappings().all(),
        waiting=(await conn.execute(_WAITING, parameters)).mappings().all(),
    )
