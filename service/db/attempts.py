"""Attempts. The only code that writes an attempt's state."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Row, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db import events, leases, notices, shortages
from service.db.leases import Claim
from service.db.tables import attempts, jobs, ledger, nodes
from service.domain import wording
from service.domain.attempt import Attempt, Move
from service.domain.elastic import Elastic
from service.domain.errors import IllegalMove
from service.domain.fleet import Offering, Price
from service.domain.states import (
    ATTEMPT_MOVES,
    ATTEMPT_WITH_NODES,
    AttemptState,
    CapacityType,
    Outcome,
)
from service.domain.terms import MOVES, OVER_BUDGET

# The members of the job's plan that an elastic job is made of.
_BATCH = [
    jobs.c.plan[name].label(name)
    for name in ("elastic", "global_batch", "micro_batch", "processes_per_node")
]
_AS_WISHED = (None, Outcome.SUCCEEDED, Outcome.CANCELLED, Outcome.PAUSED)


@dataclass(frozen=True, kw_only=True)
class AttemptRow:
    """An attempt as it is listed."""

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
    created_at: datetime
    ended_at: datetime | None


async def claim_due(
    conn: AsyncConnection, now: datetime, limit: int
) -> list[tuple[Claim, AttemptRow]]:
    """Lease attempts whose time has come."""
    live = attempts.c.state != AttemptState.ENDED
    claims = await leases.claim_due(conn, attempts, live, now, limit)
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
    row = {"id": attempt_id, "job_id": job_id, "number": number, "region": offering.region}
    row |= {"vm_size": offering.vm_size, "capacity_type": offering.capacity_type}
    row |= {"hourly": price.hourly, "on_demand_hourly": price.on_demand_hourly}
    row |= {"state": AttemptState.PENDING, "since": now, "created_at": now, "due_at": now, **shape}
    await conn.execute(insert(attempts).values(row))
    await notices.notify(conn, notices.DUE)


async def find(conn: AsyncConnection, attempt_id: str) -> AttemptRow | None:
    """One attempt, or None."""
    row = (await conn.execute(select(attempts).where(attempts.c.id == attempt_id))).one_or_none()
    return _row(row) if row else None


async def of_job(conn: AsyncConnection, job_id: str) -> list[AttemptRow]:
    """Every attempt of a job, oldest first."""
    query = select(attempts).where(attempts.c.job_id == job_id).order_by(attempts.c.number)
    return [_row(r) for r in await conn.execute(query)]


async def live_ids(conn: AsyncConnection) -> set[str]:
    """Attempts whose scale set may exist."""
    query = select(attempts.c.id).where(attempts.c.state != AttemptState.ENDED)
    return set((await conn.execute(query)).scalars())


async def held_offerings(conn: AsyncConnection) -> list[Offering]:
    """Where machines may run now."""
    place = (attempts.c.region, attempts.c.vm_size, attempts.c.capacity_type)
    live = attempts.c.state.not_in((AttemptState.PENDING, AttemptState.ENDED))
    rows = await conn.execute(select(*place).where(live).distinct())
    return sorted(
        Offering(region=r, vm_size=size, capacity_type=CapacityType(kind)) for r, size, kind in rows
    )


async def reprice(conn: AsyncConnection, offering: Offering, price: Price) -> list[str]:
    """Attempts there whose price is another one now get it; their ids, in one order."""
    c = attempts.c
    there = (c.region == offering.region, c.vm_size == offering.vm_size)
    bought = c.capacity_type == offering.capacity_type
    other = or_(c.hourly != price.hourly, c.on_demand_hourly != price.on_demand_hourly)
    live = c.state.not_in((AttemptState.PENDING, AttemptState.ENDED))
    found = select(c.id).where(*there, bought, other, live).order_by(c.id).with_for_update()
    ids = list((await conn.execute(found)).scalars())
    values = {"hourly": price.hourly, "on_demand_hourly": price.on_demand_hourly}
    await conn.execute(update(attempts).where(c.id.in_(ids)).values(values))
    return ids


async def snapshot(conn: AsyncConnection, row: AttemptRow) -> Attempt:
    """The attempt as the decision sees it, with its job's wishes."""
    query = select(
        jobs.c.cancel_requested_at,
        jobs.c.pause_requested_at,
        jobs.c.over_budget_at,
        jobs.c.moves_since,
        jobs.c.trainer_errors,
        *_BATCH,
    )
    job = (await conn.execute(query.where(jobs.c.id == row.job_id))).one()
    wish = Outcome.PAUSED if job.pause_requested_at else None
    wish = Outcome.OVER_BUDGET if job.over_budget_at else wish
    wish = Outcome.CANCELLED if job.cancel_requested_at else wish
    spot = row.offering.capacity_type is CapacityType.SPOT
    moving = wish is None and spot and job.moves_since is not None
    return Attempt(
        id=row.id,
        job_id=row.job_id,
        number=row.number,
        state=row.state,
        since=row.since,
        offering=row.offering,
        instance_count=row.instance_count,
        outcome=row.outcome,
        wish=Outcome.PAUSED if moving else wish,
        because=MOVES if moving else OVER_BUDGET if wish is Outcome.OVER_BUDGET else "",
        trainer_errors=job.trainer_errors,
        elastic=Elastic.of_plan(job._asdict()),
        refills=row.refills,
        refilled_at=row.refilled_at,
    )


async def move(
    conn: AsyncConnection, claim: Claim, row: AttemptRow, step: Move, now: datetime
) -> None:
    """Write one move with its event and wake the job; the move must exist, the lease must hold."""
    if step.to not in ATTEMPT_MOVES[row.state]:
        raise IllegalMove("attempt", row.state, step.to)
    ended = now if step.to is AttemptState.ENDED else None
    values = {"state": step.to, "since": now, "outcome": step.outcome, "ended_at": ended}
    if step.reason:
        values["reason"] = step.reason
    if step.to is AttemptState.RUNNING:
        values["ran_at"] = now
    if step.outcome is Outcome.EVICTED and row.state in ATTEMPT_WITH_NODES:
        values |= await evicted(conn, row)
    await leases.release(conn, claim, now, now, **values)
    await leases.hint(conn, jobs, row.job_id, now)
    if step.to is AttemptState.STARTING:
        await shortages.end(conn, row.offering)
    if step.to is AttemptState.TERMINATING and step.outcome is Outcome.NO_CAPACITY:
        await shortages.note(conn, row.offering, step.reason, now)
    level = "info" if step.outcome in _AS_WISHED else "warn"
    await events.add(
        conn,
        row.job_id,
        now,
        f"attempt.{step.to}",
        _sentence(row, step),
        attempt_id=row.id,
        level=level if step.to is AttemptState.TERMINATING else "info",
        data={"outcome": step.outcome, "reason": step.reason} if step.outcome else None,
    )


async def release(
    conn: AsyncConnection, claim: Claim, now: datetime, delay: timedelta, **values: object
) -> None:
    """Give the lease back and ask to be looked at again after ``delay``; write what was counted."""
    await leases.release(conn, claim, now, now + delay, **values)


async def note_refill(conn: AsyncConnection, claim: Claim, row: AttemptRow, now: datetime) -> None:
    """Write that machines are asked for in place of lost ones: the intent, before the effect."""
    await leases.write(conn, claim, refills=row.refills + 1, refilled_at=now)


async def outlived(conn: AsyncConnection, row: AttemptRow) -> dict[str, object]:
    """What to write when the attempt goes on after an eviction."""
    return {"survived": attempts.c.survived + 1, **await evicted(conn, row)}


async def evicted(conn: AsyncConnection, row: AttemptRow) -> dict[str, int]:
    """How many machines were taken back, with notice and without, as far as it is known now.

    Every machine has a row in the ledger, so those are counted too that came in place of others.
    """
    fresh = select(attempts.c.vm_ids).where(attempts.c.id == row.id)
    present = (await conn.execute(fresh)).scalar_one()
    billed = select(func.count(ledger.c.vm_id.distinct())).where(ledger.c.attempt_id == row.id)
    had = max(row.instance_count, (await conn.execute(billed)).scalar_one())
    evicting = select(nodes.c.vm_id).where(nodes.c.attempt_id == row.id, nodes.c.evicting)
    noticed = set((await conn.execute(evicting)).scalars())
    lost = had - len(present) - len(noticed - set(present))
    return {"evicted_noticed": len(noticed), "evicted_unnoticed": max(lost, 0)}


def _sentence(row: AttemptRow, step: Move) -> str:
    which = f"Attempt {row.number}"
    where = f"{row.instance_count} x {row.offering}"
    match step.to:
        case AttemptState.PROVISIONING:
            return f"{which}: asking Azure for {where}"
        case AttemptState.STARTING:
            return f"{which}: Azure has given {wording.machines(row.instance_count)}; booting"
        case AttemptState.RUNNING:
            return f"{which}: training"
        case AttemptState.TERMINATING:
            return f"{which}: {str(step.outcome).replace('_', ' ')} - {step.reason}"
        case _ if row.state is AttemptState.PENDING:
            return f"{which}: ended before any machine was asked for"
        case _:
            return f"{which}: its scale set is gone, cost is final"


def _row(r: Row[Any]) -> AttemptRow:
    capacity = CapacityType(r.capacity_type)
    return AttemptRow(
        id=r.id,
        job_id=r.job_id,
        number=r.number,
        offering=Offering(region=r.region, vm_size=r.vm_size, capacity_type=capacity),
        price=Price(hourly=Decimal(r.hourly), on_demand_hourly=Decimal(r.on_demand_hourly)),
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
        created_at=r.created_at,
        ended_at=r.ended_at,
    )
