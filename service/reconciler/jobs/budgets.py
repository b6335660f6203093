"""Looks at the budget of every project that has one; a job's own is looked at with its attempts."""

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
    """Holds nothing."""

    engine: AsyncEngine
    allowance: Allowance
    now: Callable[[], datetime]

    async def run_once(self) -> list[str]:
        """Look at each; return the jobs whose machines were told to go."""
        async with self.engine.connect() as conn:
            limited = await rows.projects_with_budget(conn)
        stopped = []
        for project_id in limited:
            stopped += await self._look(project_id)
        await self._weigh_again()
        return stopped

    async def _look(self, project_id: str) -> list[str]:
        """One transaction for the project and one per job: those lock a job before its project."""
        async with self.engine.begin() as conn:
            standing, reached = await budgets.check_project_budget(
                conn, project_id, self.allowance, self.now()
            )
            cap, since, _ = await rows.project(conn, project_id)
            holding = await rows.jobs_with_machines(conn, project_id)
        if standing is None:
            return []
        stopped = []
        for job_id in holding if reached or standing.is_exhausted else []:
            async with self.engine.begin() as conn:
                if standing.is_exhausted:  # locks attempts, so it comes first
                    await jobs.request_action(conn, job_id, self.now(), waits_for="")
                caps = await rows.lock(conn, job_id)
                if (caps.project_cap, caps.project_since) != (cap, since):
                    break  # whoever changed it has seen only those that were stopped before
                if reached:
                    await budgets.record_threshold(conn, job_id, standing, reached, self.now())
                if standing.is_exhausted:
                    because = budget.exhausted_message(standing, job_id)
                    await budgets.mark_exhausted(conn, job_id, because, self.now())
                    stopped.append(job_id)
        return stopped

    async def _weigh_again(self) -> None:
        """Jobs that stopped for a project's budget before it was set anew, should nobody have."""
        async with self.engine.connect() as conn:
            found = await rows.jobs_stopped_by_former_budget(conn)
        for job_id in found:
            async with self.engine.begin() as conn:
                await budgets.clear_exhaustion(conn, job_id, self.now())
