"""Read how fast past jobs trained, beside the plan's prediction for their machines."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.domain.performance.calibration import MeasuredJob

_LATEST = 20  # jobs; older ones ran on other software and machines
_AMONG = 500  # newest jobs of the project to search
_LEAST = 10  # fewest steps for a reliable pace

# Takes each job's newest attempt that trained, if it had the planned number of machines.
_QUERY = text(
    """
select j.model, coalesce(j.plan -> 'recipe' ->> 'method', 'supervised') method,
  case when j.plan -> 'recipe' -> 'lora' ->> 'rank' is null then ''
    when (j.plan -> 'recipe' -> 'lora' ->> 'quantized')::boolean then 'qlora' else 'lora' end
    adapters,
  a.vm_size,
  (o ->> 'roofline_seconds')::float predicted,
  (j.progress ->> 'seconds_per_step')::float measured, (j.progress ->> 'step')::int steps
from (
  select * from (
    select id, model, plan, progress from jobs where project_id = :project
    order by id desc limit :among
  ) newest
  where jsonb_exists(progress, 'seconds_per_step')
  order by id desc limit :latest
) j
join lateral (
  select region, vm_size, instance_count from attempts
  where job_id = j.id and ran_at is not null order by number desc limit 1
) a on true
join lateral (
  select o from jsonb_array_elements(j.plan -> 'options') o
  where o ->> 'vm_size' = a.vm_size and o ->> 'region' = a.region
    and (o ->> 'nodes')::int = a.instance_count
  limit 1
) options on true
where (j.progress ->> 'step')::int >= :least
"""
)


async def recent(conn: AsyncConnection, project_id: str) -> tuple[MeasuredJob, ...]:
    """Return the measured and predicted step times of the project's newest jobs."""
    parameters = {"project": project_id, "among": _AMONG, "latest": _LATEST, "least": _LEAST}
    rows = await conn.execute(_QUERY, parameters)
    return tuple(MeasuredJob(**row) for row in rows.mappings())
