"""What nodes of running attempts are told to save by; stored with the attempt, heard by heartbeats.

Written in SQL, for all attempts at once. An attempt whose user fixed the interval has `{}`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db import events, locks, offerings, versions
from service.db.events import Event
from service.db.experience import SEEN
from service.db.tables import attempts
from service.domain.cadence import Basis, Known, Lived, basis, share_answered
from service.domain.fleet import Offering
from service.domain.states import AttemptState, CapacityType
from service.domain.traces import Place
from trainer.contract import Cadence, SaveCost

# Plans are large, and read of those only that are new; nobody needs a cadence before its first
# generation, which says too whether the eviction before it was answered. One that an attempt has
# outlived shows in the next generation: a member is missing there.
_TRAINING = text("""
select a.id, a.job_id, a.region, a.vm_size, a.capacity_type, a.engine, a.hourly, a.cadence,
  a.survived, a.instance_count, case when a.state = 'running' and jsonb_array_length(a.vm_ids) > 0
    then jsonb_array_length(a.vm_ids) else a.instance_count end as machines,
  j.progress -> 'save_cost' as cost, jsonb_exists(j.progress, 'save_every') as tells,
  case when a.cadence is null then j.plan #> '{options,0}' end as option, before.said,
  past.evictions, past.answered
from attempts a
join jobs j on j.id = a.job_id
left join lateral (
  select cadence -> 'said' as said from attempts
  where a.cadence is null
    and job_id = a.job_id and number < a.number and jsonb_exists(cadence, 'said')
  order by number desc limit 1
) before on true
left join lateral (
  select count(*) as evictions, count(*) filter (where g.lost_steps = 0) as answered
  from (
    select attempt_id, lost_steps, content -> 'members' as members,
      lag(attempt_id) over w as attempt_before, lag(content -> 'members') over w as members_before
    from generations
    where job_id = a.job_id
      and (a.cadence is null or a.survived > coalesce(cast(a.cadence ->> 'survived' as int), 0))
    window w as (order by number)
  ) g
  join attempts e on e.id = g.attempt_before
  where case
    when e.id <> g.attempt_id then e.outcome = 'evicted' and e.ran_at is not null
    when e.survived > 0 then exists (
      select from jsonb_array_elements(g.members_before) m
      where not g.members @> jsonb_build_array(jsonb_build_object('vm_id', m -> 'vm_id'))
    )
  end
) past on true
where a.state in ('starting', 'running') and a.cadence is distinct from '{}'
  and (a.cadence is not null or exists (select from generations where attempt_id = a.id))
""")

# As it was then, as far as rows tell: whoever reads it later finds nearly the same.
_LIVED = text("""
select a.region, a.vm_size,
  sum(a.instance_count * greatest(extract(epoch from
    least(a.until, cast(:at as timestamptz)) - a.ran_at
  ), 0)) / 3600 as hours,
  count(*) filter (where a.outcome = 'evicted' and a.until <= :at) + sum(
    a.survived - (select count(*) from unnest(a.outlived) as o (at) where o.at > :at)
  ) as evictions
from unnest(cast(:regions as text[]), cast(:sizes as text[])) as p (region, vm_size)
cross join lateral (
  select *, coalesce(over_at, case when outcome is not null then since end) as until from attempts
  where region = p.region and vm_size = p.vm_size and capacity_type = 'spot'
    and ran_at is not null and created_at > :since
) a
group by a.region, a.vm_size
""")
# Who has outlived one since then lives still, or has ended since.
_EVICTED = text("""
select region, vm_size, max(at) as last
from (
  select region, vm_size, over_at as at from attempts
  where outcome = 'evicted' and over_at > :since and capacity_type = 'spot' and ran_at is not null
  union all
  select region, vm_size, outlived[cardinality(outlived)] from attempts
  where (state <> 'ended' or ended_at > :since) and survived > 0 and capacity_type = 'spot'
) taken
where at > :since
group by region, vm_size
""")

_LEAVING = (AttemptState.TERMINATING, AttemptState.ENDED)
# Only what nobody else has written meanwhile: of two replicas one tells the user.
_WRITE = text("""
with given as (
  select * from unnest(
    cast(:ids as text[]), cast(:befores as jsonb[]), cast(:cadences as jsonb[])
  ) as g (id, before, cadence)
)
update attempts a set cadence = g.cadence from given g
where a.id = g.id and a.state not in ('terminating', 'ended')
  and a.cadence is not distinct from g.before
returning a.id
""")


@dataclass(frozen=True, kw_only=True)
class Training:
    """An attempt that trains, or will soon, and what its interval rests on."""

    id: str
    job_id: str
    offering: Offering
    hourly: Decimal  # of one machine
    machines: int  # that run ...
    instances: int  # ... of so many
    known: Known | None  # None: nothing is told yet
    before: Known | None  # what it goes on from now; None: the user has fixed the interval
    cost: SaveCost | None  # of a save, as last measured
    tells: bool  # its trainer says how often it saves: it hears what it is told


@dataclass(frozen=True, kw_only=True)
class Write:
    """What is told from now on, and the event, where the user is to hear of it."""

    training: Training
    known: Known | None  # None: the user has fixed the interval
    event: Event | None = None


async def training(conn: AsyncConnection) -> Sequence[Row[Any]]:
    """Of every attempt with a generation, but for those whose interval is fixed: to be parsed."""
    return (await conn.execute(_TRAINING)).all()


def spot_place(row: Row[Any]) -> Place | None:
    """Where its machines may be evicted; None: they are bought on demand."""
    spot = row.capacity_type == CapacityType.SPOT
    return Place(row.region, row.vm_size) if spot else None


async def lived(
    conn: AsyncConnection, places: Collection[Place], at: datetime
) -> dict[Place, Lived]:
    """What holds of Spot machines of all jobs had seen there by then; only where any were."""
    given = {"regions": [p.region for p in places], "sizes": [p[1] for p in places]}
    rows = await conn.execute(_LIVED, given | {"at": at, "since": at - SEEN})
    return {
        Place(r.region, r.vm_size): Lived(machine_hours=float(r.hours), evictions=int(r.evictions))
        for r in rows
    }


async def evicted(conn: AsyncConnection, since: datetime) -> dict[Place, datetime]:
    """When machines were evicted last, where they were since then."""
    rows = await conn.execute(_EVICTED, {"since": since})
    return {Place(r.region, r.vm_size): r.last for r in rows}


async def write(conn: AsyncConnection, news: Sequence[Write], now: datetime) -> set[str]:
    """Write what is told, with the events; returns the attempts that were as they were read."""
    given: dict[str, list[Any]] = {
        "ids": [one.training.id for one in news],
        "befores": [one.training.known and one.training.known.to_json() for one in news],
        "cadences": [one.known.to_json() if one.known else "{}" for one in news],
    }
    await locks.before_writing(conn, attempts, given["ids"], attempts.c.state.not_in(_LEAVING))
    written = set((await conn.execute(_WRITE, given)).scalars())
    told = [one.event for one in news if one.event and one.training.id in written]
    await versions.raise_all(conn, {event.job_id for event in told}, now)
    await events.add_all(conn, told)
    return written


def parsed(r: Row[Any]) -> Training:
    """One of `training`; raises ValueError or KeyError where something else has been written."""
    known = Known.from_dict(r.cadence) if r.cadence else None
    return Training(
        id=r.id,
        job_id=r.job_id,
        offering=offerings.of(r),
        hourly=Decimal(r.hourly),
        machines=r.machines,
        instances=r.instance_count,
        known=known,
        before=_renewed(known, r) if known else _first(r),
        cost=SaveCost.from_dict(r.cost) if r.cost else None,
        tells=r.tells,
    )


def _renewed(known: Known, r: Row[Any]) -> Known:
    """With the evictions that the attempt has outlived since."""
    if r.survived <= known.survived:
        return known
    answered = share_answered(known.planned.answered, r.evictions, r.answered)
    return replace(known, answered=answered, survived=r.survived)


def _first(r: Row[Any]) -> Known | None:
    """By the option of the plan that the run spec rests on, and what came of earlier attempts."""
    if not (r.option and r.option.get("cadence")):
        return None
    planned = Cadence.from_dict(r.option["cadence"])
    place = Place(r.option["region"], r.option["vm_size"])
    return Known(
        told=planned,
        since=0.0,
        said=Basis.from_dict(r.said) if r.said else basis(planned, r.option["nodes"], place),
        planned=planned,
        planned_seconds=r.option["checkpoint_seconds"],
        answered=share_answered(planned.answered, r.evictions, r.answered),
        survived=r.survived,
    )
