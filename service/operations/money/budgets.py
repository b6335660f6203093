"""Budgets: reserve money before machines are requested, stop machines before it is spent."""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.attempts.attempts import AttemptRow
from service.db.jobs import events, jobs
from service.db.money import budgets
from service.db.money.budgets import BudgetCaps
from service.domain import humanize
from service.domain.errors import InvalidRequest
from service.domain.money import budget
from service.domain.money.budget import Allowance, BudgetStanding
from service.domain.money.cost import CURRENCY, cents
from service.domain.states import ATTEMPT_WITH_OUTCOME
from service.operations.projects.keys import find_project_id

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class BudgetRefusal:
    """No machines now: until the budget is raised (``is_permanent``) or others are deleted."""

    reason: str
    is_permanent: bool


async def reserve_money(
    conn: AsyncConnection,
    job_id: str,
    rate: Decimal,
    until_first_step: timedelta,
    allowance: Allowance,
    now: datetime,
) -> BudgetRefusal | None:
    """Reserve money for machines at ``rate`` dollars per hour, or return why not."""
    await budgets.lock(conn, job_id)
    return await find_refusal(conn, job_id, rate, until_first_step, allowance, now)


async def find_refusal(
    conn: AsyncConnection,
    job_id: str,
    rate: Decimal,
    until_first_step: timedelta,
    allowance: Allowance,
    now: datetime,
) -> BudgetRefusal | None:
    """Return why the job's budgets do not cover such machines, or None. Locks nothing."""
    caps = await budgets.caps(conn, job_id)
    needed = budget.required_to_start(rate, allowance.of_job(caps.save_seconds), until_first_step)
    for standing in await _standings(conn, caps, now, allowance):
        if standing.remaining >= needed:
            continue
        is_permanent = standing.cap - standing.metered < needed  # metered: certainly spent
        reason = budget.exhausted_message(standing, job_id, short_of=needed)
        if not is_permanent:
            reason = (
                f"{cents(standing.reserved + standing.unmetered)} {CURRENCY} of the "
                f"{standing.whose} are reserved until other machines are confirmed deleted"
            )
        return BudgetRefusal(reason=reason, is_permanent=is_permanent)
    return None


async def enforce_job_budget(
    conn: AsyncConnection, row: AttemptRow, allowance: Allowance, now: datetime
) -> None:
    """Enforce the job's own budget: record thresholds, and stop its machines in time."""
    caps = await budgets.caps(conn, row.job_id)
    if caps.terms.budget is None:
        if row.stop_by is not None:  # from before it was lifted
            await budgets.set_nodes_stop_by(conn, row.id, None)
        return
    standing = await _job_standing(conn, caps, now, allowance)
    if budget.reached_threshold(standing, caps.announced) or standing.is_exhausted:
        caps = await budgets.lock(conn, row.job_id)  # other terms, once answered, bind
        if caps.terms.budget is None:
            return
        standing = await _job_standing(conn, caps, now, allowance)
    if threshold := budget.reached_threshold(standing, caps.announced):
        await budgets.record_threshold(conn, row.job_id, threshold)
        await record_threshold(conn, row.job_id, standing, threshold, now)
    if row.state in ATTEMPT_WITH_OUTCOME:
        return
    spare = budget.allowed_silence(standing, allowance)
    await budgets.set_nodes_stop_by(conn, row.id, now + spare)
    if standing.is_exhausted and caps.over_budget_at is None:
        await mark_exhausted(conn, row.job_id, budget.exhausted_message(standing, row.job_id), now)


async def check_project_budget(
    conn: AsyncConnection, project_id: str, allowance: Allowance, now: datetime
) -> tuple[BudgetStanding | None, int]:
    """Return a project's standing, and the newly reached threshold (percent; 0: none)."""
    cap, since, last_threshold = await budgets.project(conn, project_id, to_write=True)
    if cap is None or since is None:
        return None, 0
    standing = await _project_standing(conn, project_id, cap, since, now, allowance)
    if threshold := budget.reached_threshold(standing, last_threshold):
        await budgets.record_project_threshold(conn, project_id, threshold)
    return standing, threshold


async def find_exhausted(
    conn: AsyncConnection, job_id: str, allowance: Allowance, now: datetime
) -> BudgetStanding | None:
    """Return the exhausted budget of the job, if there is one. Locks the job, then its project."""
    caps = await budgets.lock(conn, job_id)
    standings = await _standings(conn, caps, now, allowance)
    return next((standing for standing in standings if standing.is_exhausted), None)


async def mark_exhausted(
    conn: AsyncConnection,
    job_id: str,
    reason: str,
    now: datetime,
    what_now: str = "A checkpoint is saved and the machines are deleted.",
) -> None:
    """Mark the job's budget as exhausted, with an event: its machines save a checkpoint and stop.

    Does not wake its attempts: a caller that reconciles none of them calls
    `jobs.request_action` first.
    """
    await budgets.mark_exhausted(conn, job_id, reason, now)
    text = f"{humanize.as_sentence(reason)} {what_now}"
    await events.add(conn, job_id, now, "job.budget_exhausted", text, level="warn")


async def record_threshold(
    conn: AsyncConnection, job_id: str, standing: BudgetStanding, threshold: int, now: datetime
) -> None:
    """Add the event of a reached threshold; an overrun is logged for the operator too."""
    is_over_cap = threshold == budget.CAP_PASSED
    code = "job.budget_passed" if is_over_cap else "job.budget_threshold"
    level = "error" if is_over_cap else "info" if threshold < budget.THRESHOLDS[-1] else "warn"
    data = {"percent": standing.percent, "spent": str(cents(standing.spent))}
    text = budget.threshold_message(standing, threshold)
    await events.add(conn, job_id, now, code, text, level=level, data=data)
    if is_over_cap:
        log.error("job.budget_passed", extra={"job": job_id, "cause": text, **data})


async def set_project(
    conn: AsyncConnection, name: str, cap: Decimal | None, now: datetime, since: datetime | None
) -> list[str]:
    """Give the project of that name a budget, counted from ``since``, or take it away.

    Returns the jobs that stopped for lack of money. Check each again in a transaction of its own,
    since those lock a job before its project.
    """
    project_id = await find_project_id(conn, name)
    if cap is not None and cap <= 0:
        raise InvalidRequest(f"A budget must be above 0 {CURRENCY}; this one is {cap}.")
    await budgets.set_project(conn, project_id, cap, since or now, now)
    return await budgets.exhausted_jobs(conn, project_id)


async def clear_exhaustion(conn: AsyncConnection, job_id: str, now: datetime) -> None:
    """Clear the mark of an exhausted budget, so that the job is checked again."""
    await jobs.request_action(conn, job_id, now, over_budget_at=None, over_budget_because="")


async def describe_budget(conn: AsyncConnection, name: str, now: datetime) -> str:
    """Describe a project's budget in one line, for a terminal."""
    project_id = await find_project_id(conn, name)
    cap, since, _ = await budgets.project(conn, project_id)
    if cap is None or since is None:
        return f"Project {name} has no budget."
    spent = await budgets.spent_by_project(conn, project_id, since, now)
    start = f"{since:%Y-%m-%d %H:%M} UTC"
    return f"Project {name}: {cents(spent)} of {cents(cap)} {CURRENCY} spent since {start}."


async def _standings(
    conn: AsyncConnection, caps: BudgetCaps, now: datetime, allowance: Allowance
) -> list[BudgetStanding]:
    standings = []
    if caps.terms.budget is not None:
        standings.append(await _job_standing(conn, caps, now, allowance))
    if caps.project_cap is not None and caps.project_since is not None:
        limit = (caps.project_cap, caps.project_since)
        standings.append(await _project_standing(conn, caps.project_id, *limit, now, allowance))
    return standings


async def _job_standing(
    conn: AsyncConnection, caps: BudgetCaps, now: datetime, allowance: Allowance
) -> BudgetStanding:
    assert caps.terms.budget is not None, "called only for a job with a budget"
    spent = await budgets.spent_by_job(conn, caps.job_id, now)
    holds = await budgets.holds_of_job(conn, caps.job_id)
    return budget.budget_standing(caps.terms.budget, spent, holds, now, allowance)


async def _project_standing(
    conn: AsyncConnection,
    project_id: str,
    cap: Decimal,
    since: datetime,
    now: datetime,
    allowance: Allowance,
) -> BudgetStanding:
    spent = await budgets.spent_by_project(conn, project_id, since, now)
    holds = await budgets.holds_of_project(conn, project_id)
    return budget.budget_standing(cap, spent, holds, now, allowance, whose=budget.PROJECT_BUDGET)
