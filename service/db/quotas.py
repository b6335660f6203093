"""What projects may hold, and how many Spot cores the subscription has left in each region."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db import notices
from service.db.queue import TOPIC
from service.db.queue_tables import core_quotas, queue, quotas
from service.db.tables import attempts, projects
from service.domain.admission import Cores, Project, Quota
from service.domain.catalogue import lookup
from service.domain.states import ATTEMPT_OVER, AttemptState, CapacityType

_q, _c, _a = quotas.c, core_quotas.c, attempts.c
STALE = timedelta(minutes=15)  # an older reading says nothing


async def of(
    conn: AsyncConnection,
    held: Mapping[str, tuple[int, int]],
    project_ids: Collection[str],
    usual: Quota,
) -> list[Project]:
    """These projects with their quotas; ``held``: their admitted jobs and GPUs."""
    both = projects.outerjoin(quotas, _q.project_id == projects.c.id)
    columns = (projects.c.id, projects.c.name, _q.project_id, _q.max_jobs, _q.max_gpus, _q.weight)
    query = select(*columns).select_from(both).where(projects.c.id.in_(project_ids))
    found = []
    for id_, name, own, max_jobs, max_gpus, weight in await conn.execute(query):
        quota = Quota(max_jobs=max_jobs, max_gpus=max_gpus, weight=weight) if own else usual
        many, gpus = held.get(id_, (0, 0))
        found.append(Project(id=id_, name=name, quota=quota, jobs=many, gpus=gpus))
    return found


async def put(conn: AsyncConnection, project_id: str, quota: Quota) -> None:
    """What the project may hold from now on; jobs that were let in stay. Wakes who lets in."""
    row = vars(quota)
    new = upsert(quotas).values(project_id=project_id, **row)
    await conn.execute(new.on_conflict_do_update(index_elements=[_q.project_id], set_=row))
    await notices.notify(conn, TOPIC)


async def claim_region(conn: AsyncConnection, region: str, now: datetime, every: timedelta) -> bool:
    """True for the one who is to ask Azure now."""
    new = upsert(core_quotas).values(region=region, due_at=now + every)
    taken = new.on_conflict_do_update(
        index_elements=[_c.region], set_={"due_at": now + every}, where=_c.due_at <= now
    )
    return (await conn.execute(taken.returning(_c.region))).one_or_none() is not None


async def learn(
    conn: AsyncConnection, region: str, limit: int | None, used: int, now: datetime
) -> None:
    """What Azure said; what is used beyond our own machines is others'."""
    ours = await _in_azure(conn, region)
    news = {"read_at": now, "cores": limit, "others": max(used - ours, 0)}
    await conn.execute(update(core_quotas).where(_c.region == region).values(news))
    await notices.notify(conn, TOPIC)


async def any_region(conn: AsyncConnection, now: datetime) -> bool:
    """Whether the quota of any region is known."""
    fresh = (_c.cores.is_not(None), _c.read_at > now - STALE)
    query = select(_c.region).where(*fresh).limit(1)
    return (await conn.execute(query)).scalar_one_or_none() is not None


async def regions(conn: AsyncConnection, now: datetime, *, besides: str = "") -> dict[str, Cores]:
    """Spot cores of every region whose quota is known; ``besides``: a job whose own kept ones
    are not counted."""
    fresh = (_c.cores.is_not(None), _c.read_at > now - STALE)
    known = (await conn.execute(select(_c.region, _c.cores, _c.others).where(*fresh))).all()
    if not known:
        return {}
    ours = await _cores(conn)
    kept = await _kept(conn, besides)
    return {
        region: Cores(limit=limit, others=others, ours=ours.get(region, 0) + kept.get(region, 0))
        for region, limit, others in known
    }


async def _kept(conn: AsyncConnection, besides: str) -> dict[str, int]:
    """Cores of admitted jobs without a live attempt, by region."""
    q = queue.c
    live = select(_a.id).where(_a.job_id == q.job_id, _a.state.not_in(ATTEMPT_OVER))
    idle = (q.admitted_at.is_not(None), q.cores > 0, q.job_id != besides, ~live.exists())
    query = select(q.region, func.sum(q.cores)).where(*idle).group_by(q.region)
    return {region: int(cores) for region, cores in await conn.execute(query)}


async def _in_azure(conn: AsyncConnection, region: str) -> int:
    asked = (AttemptState.PENDING, AttemptState.ENDED)
    return (await _cores(conn, _a.region == region, _a.state.not_in(asked))).get(region, 0)


async def _cores(conn: AsyncConnection, *which: Any) -> dict[str, int]:  # noqa: ANN401 - conditions
    """Spot cores of attempts, by region. Of those that leave, what was seen to be there last."""
    there = func.jsonb_array_length(_a.vm_ids)
    leaving = _a.state == AttemptState.TERMINATING
    query = (
        select(_a.region, _a.vm_size, leaving, func.sum(_a.instance_count), func.sum(there))
        .where(_a.capacity_type == CapacityType.SPOT, _a.state != AttemptState.ENDED, *which)
        .group_by(_a.region, _a.vm_size, leaving)
    )
    found: dict[str, int] = {}
    for region, size, leaves, ordered, running in await conn.execute(query):
        sku = lookup(size)
        count = int(running if leaves else ordered)
        found[region] = found.get(region, 0) + count * (sku.vcpus if sku else 0)
    return found
