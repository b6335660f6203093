"""What nodes of running attempts are told to save by; stored with the attempt, heard by heartbeats.

Written in SQL, for all attempts at once. An attempt whose user fixed the interval has `{}`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db import events, versions
from service.db.events import Event
from service.domain.cadence import Known, Lived, first
from service.domain.fleet import Offering
from service.domain.states import CapacityType
from service.domain.traces import Place
from trainer.contract import Cadence, SaveCost

_SEEN = timedelta(days=30)  # older lives say little of today

# Plans are large, and read of those only that are new.
_TRAINING = text("""
select a.id, a.job_id, a.region, a.vm_size, a.capacity_type, a.hourly, a.cadence,
  case when a.state = 'running' and jsonb_array_length(a.vm_ids) > 0
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
  from attempts e
  join lateral (
    select lost_steps from generations
    where job_id = e.job_id
      and number > (select max(number) from generations where attempt_id = e.id)
    order by number limit 1
  ) g on true
  where a.cadence is null and a.number > 1
    and e.job_id = a.job_id and e.outcome = 'evicted' and e.ran_at is not null
) past on true
where a.state in ('starting', 'running') and a.cadence is distinct from '{}'
""")

_LIVED = text("""
select a.region, a.vm_size,
  sum(a.instance_count * greatest(extract(epoch from
    (case when a.outcome is null then cast(:now as timestamptz) else a.since end) - a.ran_at
  ), 0)) / 3600 as hours,
  count(*) filter (where a.outcome = 'evicted') + sum(a.survived) as evictions,
  max(a.since) filter (where a.outcome = 'evicted') as evicted_at
from unnest(cast(:regions as text[]), cast(:sizes as text[])) as p (region, vm_size)
join attempts a on a.region = p.region and a.vm_size = p.vm_size and a.capacity_type = 'spot'
where a.ran_at is not null and a.created_at > :since
group by a.region, a.vm_size
""")

# Only what nobody else has written meanwhile: of two replicas one tells the user.
_WRITE = text("""
with given as (
  select * from unnest(
    cast(:ids as text[]), cast(:befores as jsonb[]), cast(:cadences as jsonb[])
  ) as g (id, before, cadence)
), mine as (
  select a.id, g.cadence from attempts a join given g on g.id = a.id
  where a.state not in ('terminating', 'ended') and a.cadence is not distinct from g.before
  order by a.id for no key update of a
)
update attempts a set cadence = mine.cadence from mine where a.id = mine.id returning a.id
""")


@dataclass(frozen=True, kw_only=True)
class Training:
    """An attempt that trains, or will soon, and what its interval rests on."""

    id: str
    job_id: str
    offering: Offering
    hourly: Decimal  # of one machine
    machines: int
    known: Known | None  # None: nothing is told yet ...
    first: Known | None  # ... and it begins with this; None: the user has fixed the interval
    cost: SaveCost | None  # of a save, as last measured
    tells: bool  # its trainer says how often it saves: it hears what it is told

    @property
    def place(self) -> Place:
        """Where its machines are."""
        return Place(self.offering.region, self.offering.vm_size)


@dataclass(frozen=True, kw_only=True)
class Write:
    """What is told from now on, and the event, where the user is to hear of it."""

    training: Training
    known: Known | None  # None: the user has fixed the interval
    event: Event | None = None


async def training(conn: AsyncConnection) -> list[Training]:
    """Of every attempt that has nodes, but for those whose interval is fixed."""
    return [_training(row) for row in await conn.execute(_TRAINING)]


async def lived(
    conn: AsyncConnection, places: Collection[Place], now: datetime
) -> dict[Place, Lived]:
    """What holds of Spot machines of all jobs have seen there; only where there were any."""
    given = {"regions": [p.region for p in places], "sizes": [p[1] for p in places]}
    rows = await conn.execute(_LIVED, given | {"now": now, "since": now - _SEEN})
    return {
        Place(r.region, r.vm_size): Lived(
            machine_hours=float(r.hours),
            evictions=int(r.evictions),
            evicted_s=(now - r.evicted_at).total_seconds() if r.evicted_at else None,
        )
        for r in rows
    }


async def write(conn: AsyncConnection, news: Sequence[Write], now: datetime) -> set[str]:
    """Write what is told, with the events; returns the attempts that were as they were read."""
    given = {
        "ids": [one.training.id for one in news],
        "befores": [one.training.known and one.training.known.to_json() for one in news],
        "cadences": [one.known.to_json() if one.known else "{}" for one in news],
    }
    written = set((await conn.execute(_WRITE, given)).scalars())
    told = [one.event for one in news if one.event and one.training.id in written]
    await versions.raise_all(conn, {event.job_id for event in told}, now)
    await events.add_all(conn, told)
    return written


def _training(r: Row[Any]) -> Training:
    capacity = CapacityType(r.capacity_type)
    return Training(
        id=r.id,
        job_id=r.job_id,
        offering=Offering(region=r.region, vm_size=r.vm_size, capacity_type=capacity),
        hourly=Decimal(r.hourly),
        machines=r.machines,
        known=Known.from_dict(r.cadence) if r.cadence else None,
        first=_first(r),
        cost=SaveCost.from_dict(r.cost) if r.cost else None,
        tells=r.tells,
    )


def _first(r: Row[Any]) -> Known | None:
    """By the option of the plan that the run spec rests on, and what came of earlier attempts."""
    planned = r.option and r.option.get("cadence")
    if not planned:
        return None
    return first(
        r.option["checkpoint_seconds"],
        Cadence.from_dict(planned),
        said=Cadence.from_dict(r.said) if r.said else None,
        evictions=r.evictions or 0,
        answered=r.answered or 0,
    )
