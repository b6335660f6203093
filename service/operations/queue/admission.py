"""Admit jobs from the queue before they request machines; publish the others' positions."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.core import locks
from service.db.jobs import jobs
from service.db.jobs.jobs import JobRow
from service.db.queue import queue, quotas
from service.db.queue.queue import Gang, WrittenStanding
from service.db.schema import tables
from service.db.spot import capacity_outages
from service.domain import humanize
from service.domain.cloud.fleet import Offering, Price
from service.domain.errors import InvalidRequest
from service.domain.performance.vm_catalogue import lookup
from service.domain.placement.offering_choice import OfferingState, gpus_per_machine
from service.domain.queue.admission import (
    AdmittedJob,
    ProjectQuota,
    ProjectUsage,
    RegionCores,
    RegionRequest,
    WaitingJob,
    decide_admissions,
)
from service.domain.spot.capacity_backoff import Shortage
from service.domain.states import CapacityType
from service.instruments import QUEUE_WAIT
from service.operations.projects.keys import find_project_id

_EXACT_POSITIONS = 10  # positions that are always kept up to date; further back to within a tenth
# A queued job does not try offerings that Azure refused this recently: admitted jobs detect when
# capacity is back, and a job that left the queue to try would lose its position.
_REFUSAL_MEMORY = timedelta(hours=1)
_RECHECK_DELAY = timedelta(seconds=15)  # recheck of a region whose quota of cores is used up


async def request_admission(
    engine: AsyncEngine,
    row: JobRow,
    default_quota: ProjectQuota,
    prices: Mapping[Offering, Price],
    now: datetime,
) -> bool:
    """Return whether the job may request machines; if not, put it into the queue.

    A job that no other job precedes and no quota limits is admitted at once.
    """
    async with engine.begin() as conn:
        if await queue.is_admitted(conn, row.id):
            return True
        gang = make_gang(row)
        admitted = await _admit_now(conn, gang, default_quota, now)
        if admitted is None:
            await queue.enqueue(conn, await _open_gang(conn, row, prices, now), now)
            return False
        await queue.admit_at_once(conn, gang, now, admitted.region, admitted.cores)
        return True


async def admit_waiting_jobs(
    conn: AsyncConnection, default_quota: ProjectQuota, now: datetime
) -> int:
    """Admit the jobs that may start, update the others' positions; return the number admitted."""
    await queue.acquire_admission_lock(conn)
    entries = await queue.waiting(conn)
    if not entries:
        return 0
    waiting = [entry for entry, _ in entries.values()]
    projects = await _project_usages(conn, {w.project_id for w in waiting}, default_quota)
    regions = await quotas.regions(conn, now)
    # May be thousands.
    decision = await asyncio.to_thread(decide_admissions, waiting, projects, regions, now)
    updates = [
        standing
        for standing in decision.waiting
        if _should_publish(entries[standing.job_id][1], standing)
    ]
    job_ids = [a.job_id for a in decision.admitted] + [standing.job_id for standing in updates]
    await locks.lock_rows(conn, tables.jobs, job_ids)
    await queue.admit(conn, decision.admitted, now)
    await queue.write_standings(conn, updates, now)
    reasons = {
        standing.job_id: standing.why
        for standing in updates
        if entries[standing.job_id][1].position is None
    }
    await queue.note_waits(conn, reasons, now)
    for job_id in (admitted.job_id for admitted in decision.admitted):
        entry, _ = entries[job_id]
        QUEUE_WAIT.observe(entry.priority, value=(now - entry.since).total_seconds())
    return len(decision.admitted)


async def mark_full_regions(
    conn: AsyncConnection, job_id: str, states: Sequence[OfferingState], nodes: int, now: datetime
) -> list[OfferingState]:
    """Mark the offerings whose region has too few free Spot cores for the job as sold out.

    Holds the lock on core counts until the transaction ends: the caller must write the attempt that
    takes the cores.
    """
    if not await quotas.is_any_quota_known(conn, now):
        return list(states)
    await jobs.acquire_lock(conn, "cores")
    regions = await quotas.regions(conn, now, besides=job_id)
    return [_mark_if_full(state, regions.get(state.offering.pool), nodes, now) for state in states]


async def find_jobs_with_room(
    conn: AsyncConnection, requests: Mapping[str, tuple[Offering, int]], now: datetime
) -> set[str]:
    """Return the admitted jobs whose region has enough free cores; each requests one offering.

    Holds the lock on core counts, as ``mark_full_regions`` does, and the caller writes the
    attempts. Cores that are reserved for a job count as free for it. None of these jobs has a live
    attempt.
    """
    has_quotas = await quotas.is_any_quota_known(conn, now)
    if has_quotas:
        await jobs.acquire_lock(conn, "cores")
    reservations = await queue.admitted(conn, requests, now)
    regions = await quotas.regions(conn, now) if has_quotas else {}
    with_room = set()
    for job_id, (region, cores) in sorted(reservations.items()):
        offering, nodes = requests[job_id]
        region_cores, sku = regions.get(offering.pool), lookup(offering.vm_size)
        if region_cores is None or sku is None or offering.capacity_type is not CapacityType.SPOT:
            with_room.add(job_id)
            continue
        extra_cores = nodes * sku.vcpus - (cores if region == offering.pool else 0)
        if extra_cores <= region_cores.free:
            regions[offering.pool] = region_cores.with_more_cores(extra_cores)
            with_room.add(job_id)
    return with_room


async def requeue_job(
    conn: AsyncConnection, row: JobRow, states: Sequence[OfferingState], now: datetime
) -> bool:
    """Send a job that found no free cores in time back into the queue; return whether it was sent.

    The caller holds the job. ``states`` come from ``mark_full_regions``; none may be requested now.
    The job queues for the offerings that lack only cores, so that others do not starve it.
    It stays admitted if there is no such offering, or if its deadline allows it to buy on demand: a
    job that waits for a price or for Azure keeps cores from no other.
    """
    terms = row.constraints
    too_expensive = {
        state.offering
        for state in states
        if terms.forbids(state.offering, state.price, _gpus(state.offering.vm_size))
    }
    buyable = terms.buys(
        [state.offering for state in states if state.offering not in too_expensive]
    )
    if any(o.capacity_type is CapacityType.ON_DEMAND for o in buyable):
        return False
    lacking = {
        state.offering for state in states if state.shortage and not state.shortage.in_a_row
    } - too_expensive
    if not lacking:
        return False
    excluded = {state.offering for state in states} - lacking
    return await queue.send_back(conn, make_gang(row, excluded), row.since, now)


async def reserve_cores(conn: AsyncConnection, row: JobRow, offering: Offering) -> None:
    """Reserve the offering's cores for the job, which the caller holds."""
    nodes = row.parsed_plan.chosen.nodes
    await queue.move_reservation(conn, row.id, offering.pool, _spot_cores(offering, nodes))


async def set_quota(
    conn: AsyncConnection, name: str, changes: dict[str, float | None], default_quota: ProjectQuota
) -> None:
    """Change the quota of the project of that name; members that are not named stay."""
    project_id = await find_project_id(conn, name)
    (project,) = await quotas.of(conn, {}, [project_id], default_quota)
    quota = ProjectQuota(**vars(project.quota) | changes)
    if min(quota.max_jobs or 0, quota.max_gpus or 0) < 0 or quota.weight <= 0:
        raise InvalidRequest("Numbers of jobs and GPUs are 0 or more, and a weight is above 0.")
    await quotas.put(conn, project_id, quota)


async def describe_quota(conn: AsyncConnection, name: str, default_quota: ProjectQuota) -> str:
    """Describe a project's quota in one line, for a terminal."""
    (project,) = await _project_usages(conn, [await find_project_id(conn, name)], default_quota)
    quota = project.quota
    jobs_, gpus = (
        "any number" if limit is None else str(limit) for limit in (quota.max_jobs, quota.max_gpus)
    )
    return (
        f"Project {name}: {project.jobs} jobs under way of {jobs_}, "
        f"{project.gpus} GPUs of {gpus}, weight {quota.weight:g}."
    )


def make_gang(
    row: JobRow, closed: Collection[Offering] = (), too_expensive: Collection[Offering] = ()
) -> Gang:
    """Return the job's request: the most GPUs of any option, and the cores in each region.

    Leaves out ``closed`` offerings while there is another that it would buy, and ``too_expensive``
    ones (above its price limit) while it would buy any.
    """
    plan, terms = row.parsed_plan, row.constraints
    nodes = plan.chosen.nodes
    offerings = [option.offering for option in plan.options]
    allowed = [o for o in offerings if not terms.forbids(o, None, 0)]
    buyable = terms.buys([o for o in allowed if o not in too_expensive] or allowed)
    open_ = [o for o in buyable if o not in closed]
    wants = [
        RegionRequest(region=offering.pool, cores=_spot_cores(offering, nodes))
        for offering in open_ or buyable or offerings
    ]
    return Gang(
        job_id=row.id,
        project_id=row.project_id,
        priority=terms.priority,
        gpus=nodes * max(_gpus(offering.vm_size) for offering in offerings),
        wants=tuple(dict.fromkeys(wants)),
    )


async def _open_gang(
    conn: AsyncConnection, row: JobRow, prices: Mapping[Offering, Price], now: datetime
) -> Gang:
    """Return the job's request without offerings that its price limit or Azure refuses now.

    On demand needs no cores: a job that may buy there tries again as soon as the shortage has
    ended.
    """
    plan, terms = row.parsed_plan, row.constraints
    offerings, nodes = [option.offering for option in plan.options], plan.chosen.nodes
    shortages = await capacity_outages.open_shortages(conn, offerings)
    refused = {
        o
        for o, shortage in shortages.items()
        if o.capacity_type is CapacityType.SPOT and shortage.covers(now - _REFUSAL_MEMORY, nodes)
    }
    too_expensive = {o for o in offerings if terms.forbids(o, prices.get(o), _gpus(o.vm_size))}
    return make_gang(row, refused, too_expensive)


async def _admit_now(
    conn: AsyncConnection, gang: Gang, default_quota: ProjectQuota, now: datetime
) -> AdmittedJob | None:
    """Admit a job that need not wait, or return None.

    Takes the queue's lock only where a quota applies: unlimited jobs are admitted side by side.
    """
    if await queue.has_waiting(conn):
        return None
    (project,) = await quotas.of(conn, {}, [gang.project_id], default_quota)
    quota = project.quota
    limited = quota.max_jobs is not None or quota.max_gpus is not None
    if not limited and not await quotas.is_any_quota_known(conn, now):
        return AdmittedJob(job_id=gang.job_id)
    await queue.acquire_admission_lock(conn)
    if await queue.has_waiting(conn):
        return None
    projects = await _project_usages(conn, [gang.project_id], default_quota)
    decision = decide_admissions(
        [gang.waiting(now)], projects, await quotas.regions(conn, now), now
    )
    return decision.admitted[0] if decision.admitted else None


async def _project_usages(
    conn: AsyncConnection, project_ids: Sequence[str] | set[str], default_quota: ProjectQuota
) -> list[ProjectUsage]:
    usage = await queue.admitted_usage(conn, project_ids)
    return await quotas.of(conn, usage, project_ids, default_quota)


def _should_publish(before: WrittenStanding, standing: WaitingJob) -> bool:
    """Return whether the new position is worth a write: most of ten thousand jobs move little."""
    if before.position is None or before.code != standing.code:
        return True
    if standing.position <= _EXACT_POSITIONS:
        return (before.position, before.why) != (standing.position, standing.why)
    return abs(before.position - standing.position) > standing.position / _EXACT_POSITIONS


def _mark_if_full(
    state: OfferingState, cores: RegionCores | None, nodes: int, now: datetime
) -> OfferingState:
    offering, sku = state.offering, lookup(state.offering.vm_size)
    if cores is None or sku is None or offering.capacity_type is not CapacityType.SPOT:
        return state
    needed = nodes * sku.vcpus
    if needed <= cores.free:
        return state
    availability = f"{max(cores.free, 0)} of {cores.limit} Spot cores are free in {offering.pool}"
    shortage = Shortage(
        offering=offering,
        since=now,
        ends_at=now + _RECHECK_DELAY,
        in_a_row=0,
        nodes=nodes,
        reason=humanize.as_sentence(f"{availability}, and {needed} are needed"),
    )
    return replace(state, shortage=shortage)


def _spot_cores(offering: Offering, nodes: int) -> int:
    """Return the cores that count against the region's Spot quota."""
    sku = lookup(offering.vm_size)
    return nodes * sku.vcpus if sku and offering.capacity_type is CapacityType.SPOT else 0


def _gpus(vm_size: str) -> int:
    """Return the GPUs of one machine; a machine without GPUs counts as one."""
    return max(gpus_per_machine(vm_size), 1)
