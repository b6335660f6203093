"""/v1/organization/projects: all projects, in OpenAI's shape. For operators.

Operators' keys act in each of them with the header OpenAI-Project.
"""

from typing import Annotated

from fastapi import APIRouter, Query

from service.api.deps import Db, Operator, PartsDep
from service.api.http.pages import After, clamp_limit, page, require_known_cursor
from service.api.schemas.organization import Project, ProjectList
from service.db.projects import keys

router = APIRouter(prefix="/organization", tags=["Organization"])
_MAX_LIMIT = 100
Job = Annotated[str | None, Query(description="id of a job: only the project that has it")]


@router.get("/projects", operation_id="list-projects")
async def list_projects(
    parts: PartsDep,
    db: Db,
    caller: Operator,
    limit: int = 20,
    after: After = None,
    job: Job = None,
) -> ProjectList:
    """List all projects, newest first, including those that never had a machine."""
    limit = clamp_limit(limit, _MAX_LIMIT)
    rows = await keys.newest_projects(db, after=after, limit=limit + 1, job_id=job)
    return page(ProjectList, require_known_cursor(rows, after), limit, _project)


def _project(project: keys.Project) -> Project:
    created = int(project.created_at.timestamp())
    return Project(id=project.id, name=project.name, created_at=created)
