"""Read holders of Spot cores and jobs ahead in the queue, with forecasts of their ends."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.cloud.offerings import pool
from service.db.queue.queue import IDLE_SINCE
from service.domain.performance.vm_catalogue import lookup
from service.domain.planning import checkpoint_interval, forecast
from service.domain.planning.forecast import ForecastInputs, ObservedProgress, RemainingTime
from service.domain.queue.admission import ADMISSION_HOLD, RegionRequest
from service.domain.queue.queue_forecast import CORE_REASONS, MAX_HOLDS, CoreHold, QueueEntry
from service.domain.states import AttemptState

_DELETION_TIME = RemainingTime(p10=60.0, p50=300.0, p90=900.0)  # seconds that a deletion takes
_HOLDS = text(f"""
select j.project_id, {pool("a")} as region, a.vm_size, a.state, a.instance_count,
  jsonb_array_length(a.vm_ids) as running, 0 as cores, j.total_steps, j.progress,
  j.plan #> '{{options,0}}' as option,
  (select count(*) filter (where outcome = 'evicted') + coalesce(sum(survived), 0)
    from attempts where job_id = j.id) as evictions
from attempts a join jobs j on j.id = a.job_id
where a.capacity_type = 'spot' and a.state <> 'ended' and {pool("a")} = any(:regions)
union all
select j.project_id, queue.region, '', 'pending', 0, 0, queue.cores, j.total_steps, j.progress,
  j.plan #> '{{options,0}}', 0
from queue join jobs j on j.id = queue.job_id
where queue.admitted_at is not null and queue.cores > 0 and queue.region = any(:regions)
  and queue.job_id <> :besides and not exists (
    select from attempts where job_id = queue.job_id and state not in ('terminating', 'ended')
  ) and {IDLE_SINCE} > :idle
limit :most
""")  # noqa: S608 - a constant
_QUEUE = text("""
select q.job_id, j.project_id, q.waits_since, q.wants, j.total_steps, j.progress,
  j.plan #> '{options,0}' as option, 0 as evictions
from queue q join jobs j on j.id = q.job_id
where q.waits_since is not null
  and (q.position < :position and q.code = any(:for_cores) or q.job_id = :job)
order by q.job_id = :job, q.position
""")


async def queue_up_to(conn: AsyncConnection, job_id: str, position: int) -> list[QueueEntry]:
    """Return the entries ahead of the job at ``position``, and its own last; empty if not queued.

    Jobs that wait for their project's quota are left out: when they take cores is unknown.
    """
    parameters = {"job": job_id, "position": position, "for_cores": list(CORE_REASONS)}
    rows = list(await conn.execute(_QUEUE, parameters))
    return [_parse_entry(row) for row in rows] if rows and rows[-1].job_id == job_id else []


async def core_holds(
    conn: AsyncConnection, regions: Collection[str], now: datetime, *, besides: str = ""
) -> list[CoreHold] | None:
    """Return our holds and reservations of Spot cores; None if more than ``MAX_HOLDS``.

    ``besides``: a job whose own reservation is not counted.
    """
    parameters = {
        "regions": sorted(regions),
        "besides": besides,
        "idle": now - ADMISSION_HOLD,
        "most": MAX_HOLDS + 1,
    }
    rows = list(await conn.execute(_HOLDS, parameters))
    return None if len(rows) > MAX_HOLDS else [_parse_hold(row) for row in rows]


def _parse_entry(row: Row[Any]) -> QueueEntry:
    wants = tuple(RegionRequest(region=region, cores=cores) for region, cores in row.wants)
    remaining = _remaining(row, running=False)
    return QueueEntry(
        project_id=row.project_id, since=row.waits_since, wants=wants, duration=remaining
    )


def _parse_hold(row: Row[Any]) -> CoreHold:
    is_terminating = row.state == AttemptState.TERMINATING
    is_running = row.state == AttemptState.RUNNING
    machines, sku = row.running if is_terminating else row.instance_count, lookup(row.vm_size)
    return CoreHold(
        project_id=row.project_id,
        region=row.region,
        cores=row.cores + machines * (sku.vcpus if sku else 0),
        ends=_DELETION_TIME if is_terminating else _remaining(row, running=is_running),
    )


def _remaining(row: Row[Any], *, running: bool) -> RemainingTime:
    """Forecast the time to the job's end, without its own waits for machines."""
    progress: Mapping[str, Any] = row.progress
    course = ForecastInputs.of_plan({"options": [row.option]})
    return forecast.forecast_remaining(
        course.as_it_runs(checkpoint_interval.spot_interval(progress), on_demand=False),
        steps=row.total_steps - progress.get("step", 0),
        seconds_per_step=progress.get("seconds_per_step"),
        running=running,
        progress=ObservedProgress.of(progress, row.evictions),
    )
