"""Check what a key may do: its scope, and access to other projects than its own."""

from dataclasses import replace

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from contract.choices import Scope
from service.db.core.engine import reading
from service.db.projects import keys
from service.db.projects.keys import Caller
from service.domain.errors import (
    InsufficientScope,
    MismatchedProject,
    PermissionDenied,
    ProjectNotFound,
)


def require_scope(granted: Scope, needed: Scope) -> None:
    """Raise InsufficientScope unless the scope ``granted`` to a key includes ``needed``."""
    if not granted.includes(needed):
        raise InsufficientScope(
            f"This needs a key of the scope '{needed}', and yours has '{granted}'. Use another "
            "key; `rekindle keys list` shows what each may do."
        )


async def require_project(engine: AsyncEngine, caller: Caller, operators: str) -> None:
    """Raise PermissionDenied unless the caller acts in the project named ``operators``."""
    async with engine.connect() as conn:
        if await _acts_in(conn, caller, operators):
            return
    if not operators:
        raise PermissionDenied(
            "Requires an operator key: this covers all projects. The deployment has no operators'"
            " project; set REKINDLE_OPERATOR_PROJECT."
        )
    raise PermissionDenied(
        f"Requires an operator key: this covers all projects. Use a key of project {operators!r}"
        " without a header OpenAI-Project (--project) of another. Create one: python -m"
        f" service.main key create --project {operators} --scope operator"
    )


async def is_operator(conn: AsyncConnection, caller: Caller, operators: str) -> bool:
    """Return whether the caller's key is an operator's: of the project named ``operators``."""
    return caller.scope.includes(Scope.OPERATOR) and await _acts_in(conn, caller, operators)


async def _acts_in(conn: AsyncConnection, caller: Caller, project: str) -> bool:
    return bool(project) and await keys.find_project(conn, project) == caller.project_id


async def act_in_project(engine: AsyncEngine, caller: Caller, named: str, operators: str) -> Caller:
    """Return the caller in the project that is ``named`` by its id or its name.

    An operator's key acts in any project, every other key in its own only, and does not learn which
    others exist. Raises InsufficientScope, MismatchedProject, ProjectNotFound.
    """
    if named == caller.project_id:
        return caller
    async with reading(engine).connect() as conn:
        projects = await keys.projects_named(conn, caller.project_id, named)
    (own_project,) = (project for project in projects if project.id == caller.project_id)
    if own_project.name == named:
        return caller
    if not operators or own_project.name != operators:
        raise MismatchedProject(
            f"The header OpenAI-Project names {named!r}, and this key is of the project "
            f"{own_project.name!r} ({own_project.id}). Leave the header out (OpenAI's client takes "
            "it from OPENAI_PROJECT_ID), or use a key of that project."
        )
    require_scope(caller.scope, Scope.OPERATOR)
    other_projects = sorted(
        (p for p in projects if p is not own_project), key=lambda project: project.id != named
    )
    if not other_projects:
        raise ProjectNotFound(
            f"No project has the id or the name {named!r:.80}. All of them: "
            "GET /v1/organization/projects, or rekindle projects."
        )
    return replace(caller, project_id=other_projects[0].id, operates=True)
