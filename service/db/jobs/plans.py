"""Read and write plans that were made before a job is created, until they expire."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.schema.plan_tables import plans
from service.domain.planning.plan import Plan


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """Row of a plan, with the request that it answers."""

    id: str
    project_id: str
    created_at: datetime
    expires_at: datetime
    model: str
    request: dict[str, Any]
    plan: dict[str, Any]

    @property
    def parsed_plan(self) -> Plan:
        """Return what was planned."""
        return Plan.from_dict(self.plan)


async def add(conn: AsyncConnection, row: PlanRow) -> None:
    """Write a new plan."""
    await conn.execute(insert(plans).values(vars(row)))


async def find(conn: AsyncConnection, project_id: str, plan_id: str) -> PlanRow | None:
    """Return the project's plan with this id, even if it has expired; None if there is none."""
    query = select(plans).where(plans.c.id == plan_id, plans.c.project_id == project_id)
    row = (await conn.execute(query)).mappings().one_or_none()
    return PlanRow(**row) if row else None


async def prune(conn: AsyncConnection, before: datetime) -> None:
    """Delete plans that expired before this time."""
    await conn.execute(delete(plans).where(plans.c.expires_at < before))
