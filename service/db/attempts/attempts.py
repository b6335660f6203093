"""Read and write rows of attempts; moves of their state are in `attempt_moves.py`."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import Row, insert, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.cloud import offerings
from service.db.core import leases, locks, notify
from service.db.core.leases import Claim
from service.db.schema.columns import among
from service.db.schema.tables import attempts
from service.domain.cloud.fleet import Offering, Price, max_run_time
from service.domain.cloud.rate_limit import CloudCall
from service.domain.lifecycle.attempt import Attempt
from service.domain.lifecycle.constraints import MOVES_TO_ON_DEMAND, OVER_BUDGET, RETURNS_TO_SPOT
from service.domain.lifecycle.elastic import ElasticNodes
from service.domain.states import AttemptState, CapacityType, Outcome

# Running attempts come first: they may have an eviction notice to obey.
_DUE = leases.due(
    attempts,
    attempts.c.state != AttemptState.ENDED,
    urgent=attempts.c.state == AttemptState.RUNNING,
)

_RECORD_OBSERVATIONS = text("""
with given as (
  select * from unnest(
    cast(:ids as text[]), cast(:tokens as text[]), cast(:states as text[]),
    cast(:seen as timestamptz[]), cast(:vms as jsonb[]), cast(:complete as boolean[])
  ) as g (id, token, state, seen_at, vm_ids, complete)
)
update attempts a set seen_at = coalesce(g.seen_at, a.seen_at),
  vm_ids = coalesce(g.vm_ids, a.vm_ids),
  refills = case when g.complete then 0 else a.refills end
from given g where a.id = g.id and a.lease_token = g.token and a.state = g.state
returning a.id, a.hourly, a.on_demand_hourly
""")


@dataclass(frozen=True, kw_only=True)
class AttemptRow:
    """Row of an attempt, without its lease."""

    id: str
    job_id: str
    number: int
    offering: Offering
    price: Price
    instance_count: int
    processes_per_node: int
    state: AttemptState
    since: datetime
    outcome: Outcome | None
    reason: str
    refusals: int
    vm_ids: tuple[str, ...]
    evicted_noticed: int
    evicted_unnoticed: int
    refills: int
    refilled_at: datetime | None
    seen_at: datetime | None
    stop_by: datetime | None
    access_until: datetime | None
    deferred_call: CloudCall | None
    deferred_until: datetime | None
    created_at: datetime
    ended_at: datetime | None


async def claim_due(
    conn: AsyncConnection, now: datetime, limit: int
) -> list[tuple[Claim, AttemptRow]]:
    """Lease up to ``limit`` attempts that are due."""
    claims = await leases.claim_due(conn, _DUE, now, limit)
    return [(claim, _row(claim.row)) for claim in claims]


async def add(
    conn: AsyncConnection,
    attempt_id: str,
    job_id: str,
    number: int,
    offering: Offering,
    price: Price,
    now: datetime,
    **shape: int,
) -> None:
    """Write a PENDING attempt; ``shape``: instance_count, processes_per_node, refusals, duds."""
    await add_all(conn, [new_row(attempt_id, job_id, number, offering, price, now, **shape)])


def new_row(
    attempt_id: str,
    job_id: str,
    number: int,
    offering: Offering,
    price: Price,
    now: datetime,
    **shape: int,
) -> dict[str, object]:
    """Return the row of a new PENDING attempt; ``shape`` as for ``add``."""
    row: dict[str, object] = {"id": attempt_id, "job_id": job_id, "number": number}
    row |= dict(zip(offerings.NAMES, offerings.values(offering), strict=True))
    row |= {"hourly": price.hourly, "on_demand_hourly": price.on_demand_hourly}
    row |= {"state": AttemptState.PENDING, "since": now, "created_at": now, "due_at": now, **shape}
    return row


async def add_all(conn: AsyncConnection, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows of new attempts, and wake reconcilers."""
    await conn.execute(insert(attempts), [dict(row) for row in rows])
    await notify.notify(conn, notify.DUE)


async def find(conn: AsyncConnection, attempt_id: str) -> AttemptRow | None:
    """Return the attempt, or None if it is unknown."""
    row = (await conn.execute(select(attempts).where(attempts.c.id == attempt_id))).one_or_none()
    return _row(row) if row else None


async def find_all(conn: AsyncConnection, ids: Collection[str]) -> dict[str, AttemptRow]:
    """Return the known attempts among ``ids``, by id."""
    query = select(attempts).where(among(attempts.c.id, ids))
    return {row.id: _row(row) for row in await conn.execute(query)}


async def of_job(conn: AsyncConnection, job_id: str) -> list[AttemptRow]:
    """Return every attempt of the job, oldest first."""
    query = select(attempts).where(attempts.c.job_id == job_id).order_by(attempts.c.number)
    return [_row(r) for r in await conn.execute(query)]


async def live_ids(conn: AsyncConnection) -> set[str]:
    """Return the ids of attempts whose scale set may exist."""
    query = select(attempts.c.id).where(attempts.c.state != AttemptState.ENDED)
    return set((await conn.execute(query)).scalars())


async def held_offerings(conn: AsyncConnection) -> list[Offering]:
    """Return the offerings of which machines may run now, sorted."""
    live = attempts.c.state.not_in((AttemptState.PENDING, AttemptState.ENDED))
    query = select(*offerings.columns(attempts)).where(live).distinct()
    return sorted(offerings.of(row) for row in await conn.execute(query))


async def request_reread(conn: AsyncConnection, ids: Sequence[str], now: datetime) -> None:
    """Make attempts due, and have their scale sets read: a cached list may be too old."""
    if not ids:
        return
    await leases.enqueue_all(conn, attempts, ids, now)
    unseen = update(attempts).where(among(attempts.c.id, ids)).values(seen_at=None)
    await conn.execute(unseen)


async def reprice(conn: AsyncConnection, offering: Offering, price: Price) -> list[str]:
    """Set a new price for live attempts of an offering; return the ids that it changes, sorted."""
    c = attempts.c
    of_offering = offerings.among(attempts, [offering])
    differs = or_(c.hourly != price.hourly, c.on_demand_hourly != price.on_demand_hourly)
    live = c.state.not_in((AttemptState.PENDING, AttemptState.ENDED))
    query = select(c.id).where(of_offering, differs, live).order_by(c.id)
    # Not FOR UPDATE: writers of nodes hold the keys of their attempts, in no common order.
    ids = list((await conn.execute(query.with_for_update(key_share=True))).scalars())
    values = {"hourly": price.hourly, "on_demand_hourly": price.on_demand_hourly}
    await conn.execute(update(attempts).where(c.id.in_(ids)).values(values))
    return ids


async def move_end(conn: AsyncConnection, attempt_id: str, at: datetime) -> bool:
    """Move the end of an ended attempt to ``at``, and lock its row.

    Return False if the attempt has not ended, or ended later than ``at``.
    """
    c = attempts.c
    conditions = (c.id == attempt_id, c.state == AttemptState.ENDED, c.ended_at <= at)
    statement = update(attempts).where(*conditions).values(ended_at=at).returning(c.id)
    return (await conn.execute(statement)).one_or_none() is not None


def snapshot(row: AttemptRow, job: Mapping[Any, Any]) -> Attempt:
    """Return the attempt as decisions see it; ``job``: its job's requests and elastic members."""
    stop_as = Outcome.PAUSED if job["pause_requested_at"] else None
    stop_as = Outcome.OVER_BUDGET if job["over_budget_at"] else stop_as
    stop_as = Outcome.CANCELLED if job["cancel_requested_at"] else stop_as
    spot = row.offering.capacity_type is CapacityType.SPOT
    since = job["moves_since"] if spot else job["returns_since"]
    is_moving = stop_as is None and since is not None and since >= row.created_at
    creates = row.deferred_call is CloudCall.CREATE
    return Attempt(
        id=row.id,
        job_id=row.job_id,
        number=row.number,
        state=row.state,
        since=row.since,
        offering=row.offering,
        instance_count=row.instance_count,
        outcome=row.outcome,
        stop_as=Outcome.PAUSED if is_moving else stop_as,
        because=(MOVES_TO_ON_DEMAND if spot else RETURNS_TO_SPOT)
        if is_moving
        else OVER_BUDGET
        if stop_as is Outcome.OVER_BUDGET
        else "",
        trainer_errors=job["trainer_errors"],
        elastic=ElasticNodes.of_plan(job),
        refills=row.refills,
        refilled_at=row.refilled_at,
        step_seconds=job["step_p90"],
        over_budget_at=job["over_budget_at"],
        save_seconds=job["save_seconds"],
        ends_by=row.created_at + longest if (longest := max_run_time(row.offering)) else None,
        creates_at=row.deferred_until if creates else None,
    )


@dataclass(frozen=True, kw_only=True)
class ScaleSetObservation:
    """News for the row of an attempt whose scale set was read."""

    claim: Claim
    seen_at: datetime | None  # None: as before
    vm_ids: list[str] | None  # None: as before
    is_complete: bool  # all replacement machines have arrived


async def record_observations(
    conn: AsyncConnection, observations: Sequence[ScaleSetObservation]
) -> dict[str, Price]:
    """Write what was seen under the leases; return the price of each attempt whose lease held.

    A price may differ from the one at the claim. It is locked until the transaction ends.
    """
    parameters: dict[str, list[Any]] = {
        "ids": [s.claim.row_id for s in observations],
        "tokens": [s.claim.token for s in observations],
        "states": [s.claim.row.state for s in observations],
        "seen": [s.seen_at for s in observations],
        "vms": [None if s.vm_ids is None else json.dumps(s.vm_ids) for s in observations],
        "complete": [s.is_complete for s in observations],
    }
    leased = among(attempts.c.lease_token, parameters["tokens"])
    await locks.before_writing(conn, attempts, parameters["ids"], leased)
    return {row.id: _price(row) for row in await conn.execute(_RECORD_OBSERVATIONS, parameters)}


async def note_refill(
    conn: AsyncConnection, claim: Claim, row: AttemptRow, now: datetime, requests: int
) -> None:
    """Record that replacement machines are requested: the intent, before the effect.

    ``requests``: how many to count; 0 if unusable machines are deleted first and requests follow.
    """
    await leases.write(conn, claim, refills=row.refills + requests, refilled_at=now)


def _price(r: Row[Any]) -> Price:
    return Price(hourly=Decimal(r.hourly), on_demand_hourly=Decimal(r.on_demand_hourly))


def _row(r: Row[Any]) -> AttemptRow:
    return AttemptRow(
        id=r.id,
        job_id=r.job_id,
        number=r.number,
        offering=offerings.of(r),
        price=_price(r),
        instance_count=r.instance_count,
        processes_per_node=r.processes_per_node,
        state=AttemptState(r.state),
        since=r.since,
        outcome=Outcome(r.outcome) if r.outcome else None,
        reason=r.reason,
        refusals=r.refusals,
        vm_ids=tuple(r.vm_ids),
        evicted_noticed=r.evicted_noticed,
        evicted_unnoticed=r.evicted_unnoticed,
        refills=r.refills,
        refilled_at=r.refilled_at,
        seen_at=r.seen_at,
        stop_by=r.stop_by,
        access_until=r.access_until,
        deferred_call=CloudCall(r.deferred_call) if r.deferred_call else None,
        deferred_until=r.deferred_until,
        created_at=r.created_at,
        ended_at=r.ended_at,
    )
