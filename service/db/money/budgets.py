"""Read and write budgets: lock rows while money is reserved, and sum what is spent.

All code locks in one order: attempts, then their job, then its project.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Label, RowMapping, case, func, literal_column, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.core import leases
from service.db.money.metered_cost import total_cost
from service.db.schema.columns import among
from service.db.schema.tables import attempts, jobs, projects
from service.domain.lifecycle.constraints import JobConstraints
from service.domain.money.budget import PROJECT_BUDGET, BudgetHold
from service.domain.states import ATTEMPT_WITH_OUTCOME, JOB_TERMINAL, TIME_LIMITS, AttemptState

_SINCE = "cast(:since as timestamptz)"
_OF_JOB = "job_id = :id"
_OF_PROJECT = "job_id in (select id from jobs where project_id = :id)"
# Skips attempts that ended before: reading a year's ledger would hold the locks too long.
_BY_PROJECT = f"""attempt_id in (
  select a.id from attempts a join jobs j on j.id = a.job_id where j.project_id = :id
    and (a.ended_at is null or a.ended_at > {_SINCE})
)"""  # noqa: S608 - constants
_HOLDS = """
select a.state, a.hourly, a.instance_count, a.created_at, a.refills, a.refilled_at, a.seen_at,
  (select max(cast(o ->> 'save_seconds' as float))
    from jobs j, jsonb_array_elements(j.plan -> 'options') o where j.id = a.job_id) save_seconds,
  count(distinct l.vm_id) known,
  count(*) filter (where l.id is not null and l.ended_at is null) billed
from attempts a left join ledger l on l.job_id = a.job_id and l.attempt_id = a.id
where a.state <> 'ended' and a.{whose}
group by a.id
"""
_SAVE_SECONDS: Label[float | None] = (
    literal_column("""(select max(cast(o ->> 'save_seconds' as float))
  from jsonb_array_elements(jobs.plan -> 'options') o)""").label("save_seconds")
)

# Terms that decide whether a job leaves Spot for its deadline; its budget does, too.
_RISK_TERMS = ("deadline", "on_deadline_risk", "regions", "max_price")
# Time after an order of machines by which they have all been seen.
_ARRIVAL_LIMIT = 2 * TIME_LIMITS[AttemptState.PROVISIONING][0]
_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, kw_only=True)
class BudgetCaps:
    """Budgets of a job and its project, and the thresholds announced so far."""

    job_id: str
    project_id: str
    terms: JobConstraints
    over_budget_at: datetime | None
    announced: int  # the highest announced threshold of the job's own budget
    project_cap: Decimal | None
    project_since: datetime | None
    project_announced: int
    save_seconds: float  # planned for one checkpoint


async def caps(conn: AsyncConnection, job_id: str) -> BudgetCaps:
    """Return the budgets that limit the job."""
    return _caps((await conn.execute(_caps_query(job_id))).mappings().one())


async def lock(conn: AsyncConnection, job_id: str) -> BudgetCaps:
    """Lock the job and its project's budget until the transaction ends; return the budgets.

    Meanwhile no other transaction reserves money. A project without a budget is not locked, so its
    jobs can start concurrently.
    """
    query = select(jobs.c.project_id).where(jobs.c.id == job_id)
    project_id = (await conn.execute(query.with_for_update(key_share=True))).scalar_one()
    limited = select(projects.c.id).where(
        projects.c.id == project_id, projects.c.budget.is_not(None)
    )
    await conn.execute(limited.with_for_update(key_share=True))
    return await caps(conn, job_id)


async def with_budget(conn: AsyncConnection, project_ids: Collection[str]) -> set[str]:
    """Return which of these projects have a budget."""
    query = select(projects.c.id)
    statement = query.where(among(projects.c.id, project_ids), projects.c.budget.is_not(None))
    return set((await conn.execute(statement)).scalars())


async def spent_by_job(conn: AsyncConnection, job_id: str, now: datetime) -> Decimal:
    """Return the job's cost until ``now`` in US dollars: machines, storage and tier moves."""
    query = text(f"select {total_cost(_OF_JOB)}")
    return Decimal((await conn.execute(query, {"id": job_id, "now": now})).scalar_one())


async def spent_by_project(
    conn: AsyncConnection, project_id: str, since: datetime, now: datetime
) -> Decimal:
    """Return the cost of the project's jobs from ``since`` to ``now`` in US dollars."""
    query = text(f"select {total_cost(_OF_PROJECT, machines=_BY_PROJECT, since=_SINCE)}")
    parameters = {"id": project_id, "now": now, "since": since}
    return Decimal((await conn.execute(query, parameters)).scalar_one())


async def holds_of_job(conn: AsyncConnection, job_id: str) -> list[BudgetHold]:
    """Return the budget holds of the job's attempts that have not ended."""
    rows = await conn.execute(text(_HOLDS.format(whose=_OF_JOB)), {"id": job_id})
    return [_hold(r) for r in rows.mappings()]


async def holds_of_project(conn: AsyncConnection, project_id: str) -> list[BudgetHold]:
    """Return the budget holds of the project's attempts that have not ended."""
    rows = await conn.execute(text(_HOLDS.format(whose=_OF_PROJECT)), {"id": project_id})
    return [_hold(r) for r in rows.mappings()]


async def mark_exhausted(conn: AsyncConnection, job_id: str, because: str, now: datetime) -> None:
    """Mark the job's budget as exhausted, and wake its reconciler.

    The mark is dated no earlier than the project's budget, which another replica's clock may have
    dated: else the job would be checked against it again and again.
    """
    set_at = select(projects.c.budget_set_at).where(projects.c.id == jobs.c.project_id)
    at = func.greatest(now, set_at.scalar_subquery())
    values = {"over_budget_at": at, "over_budget_because": because, "waits_for": ""}
    await conn.execute(update(jobs).where(jobs.c.id == job_id).values(values))
    await leases.enqueue(conn, jobs, job_id, now)


async def clear_exhausted(conn: AsyncConnection, job_id: str) -> None:
    """Clear the mark of an exhausted budget: the job may request machines again."""
    values = {"over_budget_at": None, "over_budget_because": ""}
    await conn.execute(update(jobs).where(jobs.c.id == job_id).values(values))


async def update_exhausted_reason(conn: AsyncConnection, job_id: str, because: str) -> None:
    """Update the reason why the job's budget stays exhausted."""
    statement = update(jobs).where(jobs.c.id == job_id)
    await conn.execute(statement.values(over_budget_because=because))


async def record_threshold(conn: AsyncConnection, job_id: str, reached: int) -> None:
    """Record the highest threshold of the job's budget that was announced."""
    await conn.execute(update(jobs).where(jobs.c.id == job_id).values(budget_told=reached))


async def record_project_threshold(conn: AsyncConnection, project_id: str, reached: int) -> None:
    """Record the highest threshold of the project's budget that was announced."""
    statement = update(projects).where(projects.c.id == project_id)
    await conn.execute(statement.values(budget_told=reached))


async def set_terms(
    conn: AsyncConnection, job_id: str, before: JobConstraints, terms: JobConstraints, now: datetime
) -> None:
    """Write new terms of the job; clear announcements and moves that rest on changed ones."""
    values: dict[str, Any] = {"terms": terms.as_dict(), "waits_for": ""}
    if terms.budget != before.budget:
        values["budget_told"] = 0
        is_moving = jobs.c.moves_since.is_not(None)
        values["at_risk_at"] = case((is_moving, jobs.c.at_risk_at), else_=None)
    if any(getattr(terms, name) != getattr(before, name) for name in _RISK_TERMS):
        values |= {"at_risk_at": None, "moves_since": None, "returns_since": None}
    await conn.execute(update(jobs).where(jobs.c.id == job_id).values(values))
    await leases.enqueue(conn, jobs, job_id, now)


async def set_project(
    conn: AsyncConnection,
    project_id: str,
    cap: Decimal | None,
    since: datetime | None,
    now: datetime,
) -> None:
    """Set the project's budget, counted from ``since``; ``cap`` None: remove it.

    The change is dated after every job that has stopped for lack of money, on whichever clock.
    """
    await project(conn, project_id, to_write=True)  # after stops by the old budget
    stopped = select(func.max(jobs.c.over_budget_at)).where(jobs.c.project_id == project_id)
    values = {
        "budget": cap,
        "budget_since": since if cap is not None else None,
        "budget_set_at": func.greatest(now, stopped.scalar_subquery() + _INSTANT),
        "budget_told": 0,
    }
    await conn.execute(update(projects).where(projects.c.id == project_id).values(values))


async def project(
    conn: AsyncConnection, project_id: str, *, to_write: bool = False
) -> tuple[Decimal | None, datetime | None, int]:
    """Return the project's budget, its start, and the highest threshold announced."""
    columns = (projects.c.budget, projects.c.budget_since, projects.c.budget_told)
    query = select(*columns).where(projects.c.id == project_id)
    query = query.with_for_update(key_share=True) if to_write else query
    row = (await conn.execute(query)).one()
    return row.budget, row.budget_since, row.budget_told


async def projects_with_budget(conn: AsyncConnection) -> list[str]:
    """Return the ids of projects that have a budget."""
    query = select(projects.c.id).where(projects.c.budget.is_not(None)).order_by(projects.c.id)
    return list((await conn.execute(query)).scalars())


async def jobs_with_machines(conn: AsyncConnection, project_id: str) -> list[str]:
    """Return the project's jobs with a live attempt whose budget is not marked exhausted."""
    is_live = attempts.c.state.not_in(ATTEMPT_WITH_OUTCOME)
    query = select(jobs.c.id).join(attempts, attempts.c.job_id == jobs.c.id)
    statement = query.where(
        jobs.c.project_id == project_id, is_live, jobs.c.over_budget_at.is_(None)
    )
    return list((await conn.execute(statement.order_by(jobs.c.id))).scalars())


async def exhausted_jobs(conn: AsyncConnection, project_id: str) -> list[str]:
    """Return the project's unfinished jobs whose budget is marked exhausted."""
    live = jobs.c.state.not_in(JOB_TERMINAL)
    query = select(jobs.c.id).where(
        jobs.c.project_id == project_id, live, jobs.c.over_budget_at.is_not(None)
    )
    return list((await conn.execute(query.order_by(jobs.c.id))).scalars())


async def jobs_stopped_by_former_budget(conn: AsyncConnection) -> list[str]:
    """Return unfinished jobs stopped by their project's budget before its last change."""
    query = select(jobs.c.id).join(projects, projects.c.id == jobs.c.project_id)
    statement = query.where(
        jobs.c.state.not_in(JOB_TERMINAL),
        jobs.c.over_budget_at < projects.c.budget_set_at,
        jobs.c.over_budget_because.startswith(PROJECT_BUDGET),
    )
    return list((await conn.execute(statement.order_by(jobs.c.id))).scalars())


async def set_nodes_stop_by(
    conn: AsyncConnection, attempt_id: str, moment: datetime | None
) -> None:
    """Set until when the attempt's nodes train without contact; None: for the whole outage."""
    statement = update(attempts).where(attempts.c.id == attempt_id)
    await conn.execute(statement.values(stop_by=moment))


def _caps_query(job_id: str) -> Any:  # noqa: ANN401 - SQLAlchemy's type has five parameters
    c, p = jobs.c, projects.c
    tables = jobs.join(projects, p.id == c.project_id)
    columns = (c.id, c.project_id, c.terms, c.over_budget_at, c.budget_told.label("announced"))
    limits = (p.budget, p.budget_since, p.budget_told.label("project_announced"))
    return select(*columns, *limits, _SAVE_SECONDS).select_from(tables).where(c.id == job_id)


def _caps(r: RowMapping) -> BudgetCaps:
    return BudgetCaps(
        job_id=r["id"],
        project_id=r["project_id"],
        terms=JobConstraints.from_dict(r["terms"]),
        over_budget_at=r["over_budget_at"],
        announced=r["announced"],
        project_cap=r["budget"],
        project_since=r["budget_since"],
        project_announced=r["project_announced"],
        save_seconds=r["save_seconds"],
    )


def _hold(r: RowMapping) -> BudgetHold:
    state = AttemptState(r["state"])
    is_terminating = state is AttemptState.TERMINATING
    # None once all replacements have arrived.
    refilled_at = r["refilled_at"] if r["refills"] and not is_terminating else None
    ordered_at = refilled_at or r["created_at"]
    has_arrived = (
        r["known"] and r["seen_at"] is not None and r["seen_at"] - ordered_at > _ARRIVAL_LIMIT
    )
    return BudgetHold(
        hourly=r["hourly"],
        machines=r["instance_count"],
        billed=r["billed"],
        known=r["known"],
        ordered_at=None if has_arrived or state is AttemptState.PENDING else r["created_at"],
        refilled_at=refilled_at,
        is_terminating=is_terminating,
        save_seconds=r["save_seconds"],
    )
