"""Require room for one more job, file or key of a project.

The check runs at the end of the transaction that adds one. Such transactions of one project run one
after the other, so that two of them never take the last place together.
"""

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.queue import project_limits as rows
from service.domain.errors import InvalidRequest, QuotaExceeded
from service.domain.queue.project_limits import ProjectLimits
from service.operations.projects import keys

# Jobs of transactions that have not committed: PostgreSQL has far fewer connections.
_UNCOMMITTED_MARGIN = 1000
_OPERATOR_HINT = "or ask the operator of the service for a larger quota."


async def require_room_for_job(conn: AsyncConnection, project_id: str) -> None:
    """Raise QuotaExceeded if the project may have no more live jobs.

    Takes no lock far below the limit.
    """
    count, limit = await rows.live_jobs(conn, project_id)
    if count + _UNCOMMITTED_MARGIN >= limit:
        await rows.lock_project_limits(conn, project_id)
        count, limit = await rows.live_jobs(conn, project_id)
    if count >= limit:
        raise QuotaExceeded(
            f"The project has {count} live jobs; its limit is {limit}. Wait for some to end, "
            f"cancel some, {_OPERATOR_HINT}"
        )


async def require_room_for_file(
    conn: AsyncConnection, project_id: str, size: int | None, largest: int
) -> None:
    """Raise QuotaExceeded if a file of ``size`` bytes (None: ``largest``) is too much."""
    await rows.lock_project_limits(conn, project_id)
    limits = await rows.of(conn, project_id)
    usage = await rows.usage(conn, project_id, largest)
    if usage.files >= limits.files:
        raise QuotaExceeded(
            f"The project has {usage.files} files and uploads, and may have {limits.files}. Delete "
            f"some: DELETE /v1/files/ID, {_OPERATOR_HINT}"
        )
    expected_bytes = largest if size is None else size
    if usage.bytes + expected_bytes > limits.bytes:
        unknown = " (of unknown size: send Content-Length)" if size is None else ""
        raise QuotaExceeded(
            f"The project has {usage.bytes} bytes of files and uploads, and may have "
            f"{limits.bytes}: {expected_bytes} more{unknown} are too many. Delete files: "
            f"DELETE /v1/files/ID, {_OPERATOR_HINT}"
        )


async def require_room_for_key(conn: AsyncConnection, project_id: str) -> None:
    """Raise QuotaExceeded if the project may have no more keys."""
    await rows.lock_project_limits(conn, project_id)
    limits = await rows.of(conn, project_id)
    usage = await rows.usage(conn, project_id)
    if usage.keys >= limits.keys:
        raise QuotaExceeded(
            f"The project has {usage.keys} API keys, and may have {limits.keys}. Revoke some: "
            f"DELETE /v1/api_keys/ID, {_OPERATOR_HINT}"
        )


async def set_limits(conn: AsyncConnection, name: str, changes: dict[str, int | None]) -> None:
    """Change the limits of the project of that name; None restores the default."""
    if any(limit is not None and limit < 0 for limit in changes.values()):
        raise InvalidRequest("Limits are 0 or more.")
    await rows.put(conn, await keys.find_project_id(conn, name), changes)


async def describe_limits(conn: AsyncConnection, name: str) -> str:
    """Describe what a project has and may have in one line, for a terminal."""
    project_id = await keys.find_project_id(conn, name)
    limits, usage = await rows.of(conn, project_id), await rows.usage(conn, project_id)
    names = {"live_jobs": "live jobs", "files": "files", "bytes": "bytes of files"}
    names |= {"keys": "API keys"}
    return (
        f"It has {', '.join(_describe_use(usage, limits, n, label) for n, label in names.items())}."
    )


def _describe_use(usage: ProjectLimits, limits: ProjectLimits, name: str, label: str) -> str:
    return f"{getattr(usage, name)} of {getattr(limits, name)} {label}"
