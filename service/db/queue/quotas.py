"""Read and write project quotas, and the subscription's Spot cores in each region."""

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Select,
    func,
    literal,
    literal_column,
    or_,
    select,
    tuple_,
    union_all,
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.cloud.offerings import pool
from service.db.core import notify
from service.db.queue.queue import TOPIC, idle_since
from service.db.schema.queue_tables import core_quotas, queue, quotas
from service.db.schema.tables import attempts, projects
from service.domain.performance.vm_catalogue import lookup
from service.domain.queue.admission import ADMISSION_HOLD, ProjectQuota, ProjectUsage, RegionCores
from service.domain.states import ATTEMPT_WITH_OUTCOME, AttemptState, CapacityType

_q, _c, _a = quotas.c, core_quotas.c, attempts.c
_a_pool: ColumnElement[str] = literal_column(pool("attempts"))
STALE = timedelta(minutes=15)  # an older reading is ignored
_CORE = ""  # pseudo VM size with one core, where only cores are known


class _Reservation(NamedTuple):
    """Region of a job's reserved cores, and when the job was admitted."""

    region: str
    admitted_at: datetime


async def of(
    conn: AsyncConnection,
    holdings: Mapping[str, tuple[int, int]],
    project_ids: Collection[str],
    default: ProjectQuota,
) -> list[ProjectUsage]:
    """Return projects with quotas and usage; ``holdings``: their admitted jobs and GPUs."""
    tables = projects.outerjoin(quotas, _q.project_id == projects.c.id)
    columns = (projects.c.id, projects.c.name, _q.project_id, _q.max_jobs, _q.max_gpus, _q.weight)
    query = select(*columns).select_from(tables).where(projects.c.id.in_(project_ids))
    usages = []
    for id_, name, quota_project_id, max_jobs, max_gpus, weight in await conn.execute(query):
        quota = (
            ProjectQuota(max_jobs=max_jobs, max_gpus=max_gpus, weight=weight)
            if quota_project_id
            else default
        )
        many, gpus = holdings.get(id_, (0, 0))
        usages.append(ProjectUsage(id=id_, name=name, quota=quota, jobs=many, gpus=gpus))
    return usages


async def put(conn: AsyncConnection, project_id: str, quota: ProjectQuota) -> None:
    """Set the project's quota, and wake admission; admitted jobs stay admitted."""
    row = vars(quota)
    new = upsert(quotas).values(project_id=project_id, **row)
    await conn.execute(new.on_conflict_do_update(index_elements=[_q.project_id], set_=row))
    await notify.notify(conn, TOPIC)


async def claim_region(
    conn: AsyncConnection, region: str, now: datetime, interval: timedelta
) -> bool:
    """Claim this round's query of a region's cores; return True to one replica.

    A round more than two away was set by a clock that is ahead, and is ignored.
    """
    due = (_c.due_at <= now) | (_c.due_at > now + 2 * interval)
    new = upsert(core_quotas).values(region=region, due_at=now + interval)
    statement = new.on_conflict_do_update(
        index_elements=[_c.region], set_={"due_at": now + interval}, where=due
    )
    return (await conn.execute(statement.returning(_c.region))).one_or_none() is not None


async def record_usage(
    conn: AsyncConnection, region: str, limit: int | None, used: int, now: datetime
) -> None:
    """Store Azure's limit and usage; usage beyond our own machines counts as others'."""
    own_cores = await _own_cores_in_azure(conn, region)
    values = {"read_at": now, "cores": limit, "others": max(used - own_cores, 0)}
    await conn.execute(update(core_quotas).where(_c.region == region).values(values))
    await notify.notify(conn, TOPIC)


async def is_any_quota_known(conn: AsyncConnection, now: datetime) -> bool:
    """Return whether the quota of any region is known."""
    conditions = (_c.cores.is_not(None), _c.read_at > now - STALE)
    query = select(_c.region).where(*conditions).limit(1)
    return (await conn.execute(query)).scalar_one_or_none() is not None


async def regions(
    conn: AsyncConnection, now: datetime, *, besides: str = ""
) -> dict[str, RegionCores]:
    """Return the Spot cores of every region whose quota is known.

    ``besides``: a job whose reservation is not counted. If it has one, reservations in its region
    of jobs admitted after it do not count either: else two jobs that do not both fit would wait for
    each other.
    """
    conditions = (_c.cores.is_not(None), _c.read_at > now - STALE)
    rows = (await conn.execute(select(_c.region, _c.cores, _c.others).where(*conditions))).all()
    if not rows:
        return {}
    # One statement sees one snapshot: cores that pass from a reservation to a committed attempt are
    # counted once.
    before = await _find_reservation(conn, besides, now) if besides else None
    own_cores = await _cores(conn, union_all(_of_attempts(), _reserved_cores(now, besides, before)))
    return {
        region: RegionCores(limit=limit, others=others, own=own_cores[region])
        for region, limit, others in rows
    }


def _reserved_cores(now: datetime, besides: str, before: _Reservation | None) -> Select[Any]:
    """Return a query for reserved cores by region: admitted jobs without a live attempt."""
    q = queue.c
    live = select(_a.id).where(_a.job_id == q.job_id, _a.state.not_in(ATTEMPT_WITH_OUTCOME))
    idle = [
        q.admitted_at.is_not(None),
        q.cores > 0,
        ~live.exists(),
        idle_since > now - ADMISSION_HOLD,
    ]
    if besides:
        idle.append(q.job_id != besides)
    if before is not None:
        earlier = tuple_(q.admitted_at, q.job_id) < tuple_(before.admitted_at, besides)
        idle.append(or_(q.region != before.region, earlier))
    columns = (q.region, literal(_CORE), literal(False), func.sum(q.cores), literal(0))
    return select(*columns).where(*idle).group_by(q.region)


async def _find_reservation(
    conn: AsyncConnection, job_id: str, now: datetime
) -> _Reservation | None:
    """Return the job's reservation; None if it has none."""
    q = queue.c
    conditions = (
        q.job_id == job_id,
        q.admitted_at.is_not(None),
        q.cores > 0,
        idle_since > now - ADMISSION_HOLD,
    )
    row = (await conn.execute(select(q.region, q.admitted_at).where(*conditions))).one_or_none()
    return row and _Reservation(*row)


def _of_attempts(*conditions: ColumnElement[bool]) -> Select[Any]:
    """Return a query for Spot machines of attempts: ordered and running, by pool and size."""
    ordered = func.sum(_a.instance_count)
    running = func.sum(func.jsonb_array_length(_a.vm_ids))
    is_terminating = _a.state == AttemptState.TERMINATING
    return (
        select(_a_pool, _a.vm_size, is_terminating, ordered, running)
        .where(_a.capacity_type == CapacityType.SPOT, _a.state != AttemptState.ENDED, *conditions)
        .group_by(_a_pool, _a.vm_size, is_terminating)
    )


async def _own_cores_in_azure(conn: AsyncConnection, region: str) -> int:
    excluded = (AttemptState.PENDING, AttemptState.ENDED)
    query = _of_attempts(_a_pool == region, _a.state.not_in(excluded))
    return (await _cores(conn, query))[region]


async def _cores(
    conn: AsyncConnection, machines: Select[Any] | CompoundSelect[Any]
) -> Counter[str]:
    """Sum cores by region; machines being deleted count as far as they were last seen."""
    totals = Counter[str]()
    for region, size, is_terminating, ordered, running in await conn.execute(machines):
        sku = lookup(size)
        vcpus = 1 if size == _CORE else sku.vcpus if sku else 0
        totals[region] += int(running if is_terminating else ordered) * vcpus
    return totals
