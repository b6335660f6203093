"""Read what attempts of all jobs saw of Spot capacity: holds, refusals and evictions."""

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, func, or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.schema.tables import attempts, ledger
from service.domain.spot.capacity_traces import CapacitySample, HeldMachine, SpotPool
from service.domain.states import CapacityType, Outcome

_a, _l = attempts.c, ledger.c
_POOL = (_a.region, _a.vm_size)
_SPOT = _a.capacity_type == CapacityType.SPOT
_BEFORE = timedelta(days=7)  # older observations say nothing about the first ticks
_TEARDOWN = timedelta(minutes=10)  # machines are deleted within it
_LAST = 200  # attempts
_NO_CAPACITY_OUTCOMES = (Outcome.EVICTED, Outcome.NO_CAPACITY)
# They say nothing about free machines.
_UNINFORMATIVE_OUTCOMES = (Outcome.MISCONFIGURED, Outcome.PROVISIONING_FAILED)


async def spot_pools(conn: AsyncConnection, since: datetime, until: datetime) -> list[SpotPool]:
    """Return the pools where Spot machines were held or requested, sorted."""
    query = select(*_POOL).where(_SPOT, _a.created_at < until, _lasted(since)).distinct()
    return [SpotPool(*row) for row in await conn.execute(query.order_by(*_POOL))]


async def held_machines(
    conn: AsyncConnection, pools: Collection[SpotPool], since: datetime, until: datetime
) -> dict[SpotPool, list[HeldMachine]]:
    """Return held machines of these pools, one per price interval; open ones end at ``until``."""
    machines: defaultdict[SpotPool, list[HeldMachine]] = defaultdict(list)
    ends = func.coalesce(_l.ended_at, until)
    query = (
        select(*_POOL, _l.started_at, ends.label("ends"), _l.hourly)
        .join(attempts, _a.id == _l.attempt_id)
        .where(
            _SPOT, tuple_(*_POOL).in_(pools), _lasted(since), _l.started_at < until, ends > since
        )
    )
    for row in await conn.execute(query):
        machine = HeldMachine(row.started_at, row.ends, row.hourly)
        machines[SpotPool(row.region, row.vm_size)].append(machine)
    return machines


async def observations(
    conn: AsyncConnection, pools: Collection[SpotPool], since: datetime, until: datetime
) -> dict[SpotPool, list[CapacitySample]]:
    """Return what attempts showed of the pools' capacity, from a while before ``since`` on.

    A refusal counts from the request, every other attempt from the moment its last machine was
    gone. Machines that were given up without an eviction were free then.
    """
    samples: defaultdict[SpotPool, list[CapacitySample]] = defaultdict(list)
    ends, rows = ledger.alias().c, ledger.alias().c
    last = select(func.max(ends.ended_at)).where(ends.attempt_id == _a.id).correlate(attempts)
    gone_at = last.scalar_subquery()
    given_up = select(func.count(rows.vm_id.distinct())).where(
        rows.attempt_id == _a.id, rows.ended_at > gone_at - _TEARDOWN
    )
    machines = given_up.correlate(attempts).scalar_subquery()
    query = (
        select(
            *(*_POOL, _a.outcome, _a.created_at),
            *(gone_at.label("gone_at"), machines.label("machines")),
        )
        .where(
            _SPOT,
            tuple_(*_POOL).in_(pools),
            _a.outcome.not_in(_UNINFORMATIVE_OUTCOMES),
            _a.created_at < until,
        )
        .where(_lasted(since - _BEFORE))
        .order_by(_a.id)
    )
    for row in await conn.execute(query):
        refused = row.outcome == Outcome.NO_CAPACITY
        at = row.created_at if refused else row.gone_at
        if at is not None and at < until:
            count = 0 if row.outcome in _NO_CAPACITY_OUTCOMES else row.machines
            samples[SpotPool(row.region, row.vm_size)].append(CapacitySample(at, count))
    return samples


def _lasted(since: datetime) -> ColumnElement[bool]:
    """Return the condition that attempts had not ended at ``since``; uses the index of ends."""
    return or_(_a.ended_at.is_(None), _a.ended_at > since)


async def largest_gang(conn: AsyncConnection) -> int:
    """Return the most Spot machines that a recent attempt requested; 1 if there are none."""
    last = select(_a.instance_count).where(_SPOT).order_by(_a.id.desc()).limit(_LAST).subquery()
    return (await conn.execute(select(func.max(last.c.instance_count)))).scalar() or 1
