"""Enforce the budgets of projects; a job's own budget is enforced with its attempts."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.jobs import jobs
from service.db.money import budgets as rows
from service.domain.money import budget
from service.domain.money.budget import Allowance
from service.operations.money import budgets


@dataclass(frozen=True, kw_only=True)
class ProjectBudgets:
    """Enforces the budget of every project that has one; has no state."""

    engine: AsyncEngine
    allowance: Allowance
    now: Callable[[], datetime]

    async def run_once(self) -> list[str]:
        """Enforce each project's budget; return the jobs whose machines are to stop."""
        async with self.engine.connect() as conn:
            project_ids = await rows.projects_with_budget(conn)
        job_ids = []
        for project_id in project_ids:
            job_ids += await self._enforce_budget(project_id)
        await self._recheck_stopped_jobs()
        return job_ids

    async def _enforce_budget(self, project_id: str) -> list[str]:
        """Enforce one budget, in a transaction for the project and one per job.

        A job's transaction locks the job before its project.
        """
        async with self.engine.begin() as conn:
            standing, threshold = await budgets.check_project_budget(
                conn, project_id, self.allowance, self.now()
            )
            cap, since, _ = await rows.project(conn, project_id)
            job_ids = await rows.jobs_with_machines(conn, project_id)
        if standing is None:
            return []
        stopped_ids = []
        for job_id in job_ids if threshold or standing.is_exhausted else []:
            async with self.engine.begin() as conn:
                if standing.is_exhausted:  # locks attempts, so it comes first
                    await jobs.request_action(conn, job_id, self.now(), waits_for="")
                caps = await rows.lock(conn, job_id)
                if (caps.project_cap, caps.project_since) != (cap, since):
                    break  # the budget has changed: that change handled the jobs stopped so far
                if threshold:
                    await budgets.record_threshold(conn, job_id, standing, threshold, self.now())
                if standing.is_exhausted:
                    reason = budget.exhausted_message(standing, job_id)
                    await budgets.mark_exhausted(conn, job_id, reason, self.now())
                    stopped_ids.append(job_id)
        return stopped_ids

    async def _recheck_stopped_jobs(self) -> None:
        """Check jobs again whose project has a new budget since they stopped."""
        async with self.engine.connect() as conn:
            job_ids = await rows.jobs_stopped_by_former_budget(conn)
        for job_id in job_ids:
            async with self.engine.begin() as conn:
                await budgets.clear_exhaustion(conn, job_id, self.now())
