"""Who may see what belongs to all projects together."""

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db import keys
from service.domain.errors import PermissionDenied


async def require(engine: AsyncEngine, project_id: str, operators: str) -> None:
    """Raise PermissionDenied unless ``project_id`` is of the project named ``operators``."""
    async with engine.connect() as conn:
        if await are(conn, project_id, operators):
            return
    raise PermissionDenied(
        f"This shows the machines of every project, so it needs a key of the project "
        f"{operators!r}. Who runs the service makes one: "
        f"python -m service.main key create --project {operators}"
    )


async def are(conn: AsyncConnection, project_id: str, operators: str) -> bool:
    """Whether ``project_id`` is of the project named ``operators``."""
    return bool(operators) and await keys.find_project(conn, operators) == project_id
