"""What budgets cover: rows that are locked while money is put aside, and sums of what is spent.

Everybody locks in one order: attempts, then their job, then its project.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Label, RowMapping, case, func, literal_column, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.core import leases
from service.db.schema.columns import among
from service.db.schema.tables import attempts, jobs, projects
from service.domain.lifecycle.constraints import JobConstraints
from service.domain.money.budget import PROJECT_BUDGET, BudgetHold
from service.domain.money.storage_cost import HOURS_PER_MONTH
from service.domain.states import ATTEMPT_OVER, JOB_TERMINAL, TIME_LIMITS, AttemptState
from service.domain.storage.access_tiers import GIB

# What is cut at {since} and {now}, in hours; both are the query's own.
_HOURS = """greatest(extract(epoch from
  least(coalesce(ended_at, cast(:now as timestamptz)), cast(:now as timestamptz))
  - greatest(started_at, cast(:since as timestamptz))), 0) / 3600"""
_OF_JOB = "job_id = :id"
_OF_PROJECT = "job_id in (select id from jobs where project_id = :id)"
# By attempts that were not over before: not a year's ledger, and not while others wait for us.
_BY_PROJECT = """attempt_id in (
  select a.id from attempts a join jobs j on j.id = a.job_id where j.project_id = :id
    and (a.ended_at is null or a.ended_at > cast(:since as timestamptz))
)"""
_SPENT = """
select coalesce((select sum(hourly * {hours}) from ledger where {by}), 0)
  + coalesce((select sum(size * month * {hours}) from storage_ledger
    where {whose} and (ended_at is null or ended_at > cast(:since as timestamptz))
  ), 0) / {month}
  + coalesce((select sum(charge) from tier_moves
    where {whose} and asked_at >= cast(:since as timestamptz)), 0)
"""
_MONTH = f"({GIB}.0 * {HOURS_PER_MONTH})"
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

# Members of terms that decide whether a job leaves Spot for its deadline; so does money for it.
_OF_RISK = ("deadline", "on_deadline_risk", "regions", "max_price")
# After an order: whoever looks then sees what came of it.
_COME = 2 * TIME_LIMITS[AttemptState.PROVISIONING][0]
_EVER = datetime.fromisoformat("2000-01-01T00:00:00+00:00")
_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, kw_only=True)
class Caps:
    """What limits a job, and what was told of it."""

    job_id: str
    project_id: str
    terms: JobConstraints
    over_budget_at: datetime | None
    told: int  # the highest threshold of the job's own budget
    project_cap: Decimal | None
    project_since: datetime | None
    project_told: int
    save_seconds: float  # planned for saving the job

    @property
    def any(self) -> bool:
        """Whether anything limits it."""
        return self.terms.budget is not None or self.project_cap is not None


async def caps(conn: AsyncConnection, job_id: str) -> Caps:
    """What limits the job."""
    return _caps((await conn.execute(_caps_query(job_id))).mappings().one())


async def lock(conn: AsyncConnection, job_id: str) -> Caps:
    """The same, with the rows locked: nobody else puts money aside until this transaction ends.

    The project's row is locked where it has a budget; jobs of others start side by side.
    """
    mine = select(jobs.c.project_id).where(jobs.c.id == job_id)
    project_id = (await conn.execute(mine.with_for_update(key_share=True))).scalar_one()
    limited = select(projects.c.id).where(
        projects.c.id == project_id, projects.c.budget.is_not(None)
    )
    await conn.execute(limited.with_for_update(key_share=True))
    return await caps(conn, job_id)


async def limited(conn: AsyncConnection, project_ids: Collection[str]) -> set[str]:
    """Those of these projects that have a budget."""
    query = select(projects.c.id)
    mine = query.where(among(projects.c.id, project_ids), projects.c.budget.is_not(None))
    return set((await conn.execute(mine)).scalars())


async def spent_by_job(conn: AsyncConnection, job_id: str, now: datetime) -> Decimal:
    """US dollars by the ledgers until ``now``: machines, storage and moves between tiers."""
    given = {"id": job_id, "now": now, "since": _EVER}
    return await _spent(conn, given, whose=_OF_JOB, by=_OF_JOB)


async def spent_by_project(
    conn: AsyncConnection, project_id: str, since: datetime, now: datetime
) -> Decimal:
    """The same of all jobs of a project, from ``since`` on."""
    given = {"id": project_id, "now": now, "since": since}
    return await _spent(conn, given, whose=_OF_PROJECT, by=_BY_PROJECT)


async def holds_of_job(conn: AsyncConnection, job_id: str) -> list[BudgetHold]:
    """The job's attempts whose machines are not seen to be gone."""
    rows = await conn.execute(text(_HOLDS.format(whose=_OF_JOB)), {"id": job_id})
    return [_hold(r) for r in rows.mappings()]


async def holds_of_project(conn: AsyncConnection, project_id: str) -> list[BudgetHold]:
    """The same of all jobs of a project."""
    rows = await conn.execute(text(_HOLDS.format(whose=_OF_PROJECT)), {"id": project_id})
    return [_hold(r) for r in rows.mappings()]


async def exhaust(conn: AsyncConnection, job_id: str, because: str, now: datetime) -> None:
    """From now on the job has no money for machines; wake its reconciler.

    Dated no earlier than the project's budget, whose clock may be ahead of ours: else the job
    would be weighed by it again and again.
    """
    set_at = select(projects.c.budget_set_at).where(projects.c.id == jobs.c.project_id)
    at = func.greatest(now, set_at.scalar_subquery())
    values = {"over_budget_at": at, "over_budget_because": because, "waits_for": ""}
    await conn.execute(update(jobs).where(jobs.c.id == job_id).values(values))
    await leases.hint(conn, jobs, job_id, now)


async def has_money(conn: AsyncConnection, job_id: str) -> None:
    """The job may ask for machines again."""
    values = {"over_budget_at": None, "over_budget_because": ""}
    await conn.execute(update(jobs).where(jobs.c.id == job_id).values(values))


async def still_exhausted(conn: AsyncConnection, job_id: str, because: str) -> None:
    """The job stays without money, for another reason maybe."""
    mine = update(jobs).where(jobs.c.id == job_id)
    await conn.execute(mine.values(over_budget_because=because))


async def told(conn: AsyncConnection, job_id: str, reached: int) -> None:
    """A threshold of the job's budget was told."""
    await conn.execute(update(jobs).where(jobs.c.id == job_id).values(budget_told=reached))


async def told_of_project(conn: AsyncConnection, project_id: str, reached: int) -> None:
    """A threshold of the project's budget was told."""
    mine = update(projects).where(projects.c.id == project_id)
    await conn.execute(mine.values(budget_told=reached))


async def set_terms(
    conn: AsyncConnection, job_id: str, before: JobConstraints, terms: JobConstraints, now: datetime
) -> None:
    """What holds from now on: what was told of members that differ is told anew."""
    values: dict[str, Any] = {"terms": terms.as_dict(), "waits_for": ""}
    if terms.budget != before.budget:
        values["budget_told"] = 0
        moving = jobs.c.moves_since.is_not(None)
        values["at_risk_at"] = case((moving, jobs.c.at_risk_at), else_=None)
    if any(getattr(terms, name) != getattr(before, name) for name in _OF_RISK):
        values |= {"at_risk_at": None, "moves_since": None, "returns_since": None}
    await conn.execute(update(jobs).where(jobs.c.id == job_id).values(values))
    await leases.hint(conn, jobs, job_id, now)


async def set_project(
    conn: AsyncConnection,
    project_id: str,
    cap: Decimal | None,
    since: datetime | None,
    now: datetime,
) -> None:
    """The project's budget, counted from ``since``; None: it has none any more.

    Dated after every job that has stopped for want of money, whoever's clock said when that was.
    """
    await project(conn, project_id, to_write=True)  # who stops a job by the old one comes first
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
    """The project's budget, from when it counts, and the highest threshold that was told."""
    columns = (projects.c.budget, projects.c.budget_since, projects.c.budget_told)
    query = select(*columns).where(projects.c.id == project_id)
    query = query.with_for_update(key_share=True) if to_write else query
    row = (await conn.execute(query)).one()
    return row.budget, row.budget_since, row.budget_told


async def limited_projects(conn: AsyncConnection) -> list[str]:
    """Projects that have a budget."""
    query = select(projects.c.id).where(projects.c.budget.is_not(None)).order_by(projects.c.id)
    return list((await conn.execute(query)).scalars())


async def holding(conn: AsyncConnection, project_id: str) -> list[str]:
    """The project's jobs that have or get machines, and have not been told to let them go."""
    held = attempts.c.state.not_in(ATTEMPT_OVER)
    query = select(jobs.c.id).join(attempts, attempts.c.job_id == jobs.c.id)
    mine = query.where(jobs.c.project_id == project_id, held, jobs.c.over_budget_at.is_(None))
    return list((await conn.execute(mine.order_by(jobs.c.id))).scalars())


async def stopped_by_project(conn: AsyncConnection, project_id: str) -> list[str]:
    """Jobs that are not over and whose machines were taken because money ran out."""
    live = jobs.c.state.not_in(JOB_TERMINAL)
    query = select(jobs.c.id).where(
        jobs.c.project_id == project_id, live, jobs.c.over_budget_at.is_not(None)
    )
    return list((await conn.execute(query.order_by(jobs.c.id))).scalars())


async def stopped_by_another(conn: AsyncConnection) -> list[str]:
    """Such jobs of any project that stopped for its budget before that was set, or lifted."""
    query = select(jobs.c.id).join(projects, projects.c.id == jobs.c.project_id)
    found = query.where(
        jobs.c.state.not_in(JOB_TERMINAL),
        jobs.c.over_budget_at < projects.c.budget_set_at,
        jobs.c.over_budget_because.startswith(PROJECT_BUDGET),
    )
    return list((await conn.execute(found.order_by(jobs.c.id))).scalars())


async def nodes_stop_by(conn: AsyncConnection, attempt_id: str, moment: datetime | None) -> None:
    """Until when the attempt's nodes go on if they hear nothing; None: for the outage."""
    mine = update(attempts).where(attempts.c.id == attempt_id)
    await conn.execute(mine.values(stop_by=moment))


async def _spent(conn: AsyncConnection, given: dict[str, Any], *, whose: str, by: str) -> Decimal:
    query = _SPENT.format(whose=whose, by=by, hours=_HOURS, month=_MONTH)
    return Decimal((await conn.execute(text(query), given)).scalar_one())


def _caps_query(job_id: str) -> Any:  # noqa: ANN401 - SQLAlchemy's type has five parameters
    c, p = jobs.c, projects.c
    both = jobs.join(projects, p.id == c.project_id)
    wanted = (c.id, c.project_id, c.terms, c.over_budget_at, c.budget_told.label("told"))
    limits = (p.budget, p.budget_since, p.budget_told.label("project_told"))
    return select(*wanted, *limits, _SAVE_SECONDS).select_from(both).where(c.id == job_id)


def _caps(r: RowMapping) -> Caps:
    return Caps(
        job_id=r["id"],
        project_id=r["project_id"],
        terms=JobConstraints.from_dict(r["terms"]),
        over_budget_at=r["over_budget_at"],
        told=r["told"],
        project_cap=r["budget"],
        project_since=r["budget_since"],
        project_told=r["project_told"],
        save_seconds=r["save_seconds"],
    )


def _hold(r: RowMapping) -> BudgetHold:
    state = AttemptState(r["state"])
    leaving = state is AttemptState.TERMINATING
    anew = r["refilled_at"] if r["refills"] and not leaving else None  # else all of them have come
    ordered_at = anew or r["created_at"]
    come = r["known"] and r["seen_at"] is not None and r["seen_at"] - ordered_at > _COME
    return BudgetHold(
        hourly=r["hourly"],
        machines=r["instance_count"],
        billed=r["billed"],
        known=r["known"],
        ordered_at=None if come or state is AttemptState.PENDING else r["created_at"],
        refilled_at=anew,
        leaving=leaving,
        save_seconds=r["save_seconds"],
    )
