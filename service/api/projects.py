"""/v1/organization/projects: which there are, in OpenAI's shape. For operators.

Their keys act in each of them by the header OpenAI-Project.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from service.api.deps import CallerDep, Db, PartsDep
from service.api.pages import After, clamp, known, page
from service.db import keys
from service.db.keys import Project
from service.operations import operators

router = APIRouter(prefix="/organization", tags=["organization"])
_MOST = 100
Job = Annotated[str | None, Query(description="id of a job: only the project that has it")]


@router.get("/projects")
async def list_projects(
    parts: PartsDep,
    db: Db,
    caller: CallerDep,
    limit: int = 20,
    after: After = None,
    job: Job = None,
) -> dict[str, Any]:
    """Newest first, also those that never had a machine."""
    await operators.require(parts.engine, caller.project_id, parts.operator_project)
    limit = clamp(limit, _MOST)
    found = await keys.newest_projects(db, after=after, limit=limit + 1, job_id=job)
    return page(known(found, after), limit, _shown)


def _shown(project: Project) -> dict[str, Any]:
    return {
        "id": project.id,
        "object": "organization.project",
        "name": project.name,
        "created_at": int(project.created_at.timestamp()),
        "archived_at": None,
        "status": "active",
    }
