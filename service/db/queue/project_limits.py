"""Read and write a project's limits; usage is counted from the rows, so no counter drifts."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    ScalarSelect,
    Text,
    bindparam,
    cast,
    func,
    select,
)
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.jobs.jobs import acquire_lock
from service.db.schema.file_tables import files, uploads
from service.db.schema.queue_tables import project_limits
from service.db.schema.tables import api_keys, jobs
from service.domain.queue.project_limits import DEFAULT_PROJECT_LIMITS, ProjectLimits
from service.domain.reporting.result_file import PURPOSE as PURPOSE_OF_RESULTS

_COLUMNS = [project_limits.c[name] for name in ProjectLimits.__dataclass_fields__]
_UNDER_WAY = uploads.c.given_up_at.is_(None)


async def lock_project_limits(conn: AsyncConnection, project_id: str) -> None:
    """Block other transactions that add to the project until this one ends."""
    await acquire_lock(conn, f"limits:{project_id}")


async def of(conn: AsyncConnection, project_id: str) -> ProjectLimits:
    """Return the limits of the project."""
    query = select(*_COLUMNS).where(project_limits.c.project_id == project_id)
    row = (await conn.execute(query)).mappings().one_or_none()
    overrides = {name: most for name, most in row.items() if most is not None} if row else {}
    return ProjectLimits(**{**vars(DEFAULT_PROJECT_LIMITS), **overrides})


async def put(conn: AsyncConnection, project_id: str, changes: dict[str, int | None]) -> None:
    """Change limits of the project; None: back to the default. Limits not named stay."""
    new = upsert(project_limits).values(project_id=project_id, **changes)
    await conn.execute(
        new.on_conflict_do_update(index_elements=[project_limits.c.project_id], set_=changes)
    )


async def usage(conn: AsyncConnection, project_id: str, unknown_bytes: int = 0) -> ProjectLimits:
    """Return the project's usage; an upload of unknown size counts as ``unknown_bytes``."""
    file_conditions = _files(project_id)
    under_way = (uploads.c.project_id == project_id, _UNDER_WAY)
    size = func.coalesce(uploads.c.expected_bytes, unknown_bytes)
    live_keys = (api_keys.c.project_id == project_id, api_keys.c.revoked_at.is_(None))
    query = select(
        _live_jobs(project_id).label("live_jobs"),
        (_count(files, *file_conditions) + _count(uploads, *under_way)).label("files"),
        (_sum(files.c.bytes, *file_conditions) + _sum(size, *under_way)).label("bytes"),
        _count(api_keys, *live_keys).label("keys"),
    )
    return ProjectLimits(**(await conn.execute(query)).mappings().one())


async def live_jobs(conn: AsyncConnection, project_id: str) -> tuple[int, int]:
    """Return the number of the project's live jobs and their limit, in one statement."""
    count, limit = (await conn.execute(_LIVE_JOBS, {"project_id": project_id})).one()
    return count, DEFAULT_PROJECT_LIMITS.live_jobs if limit is None else limit


def _live_jobs(project_id: str | BindParameter[str]) -> ScalarSelect[int]:
    """Return a query for the number of live jobs; its condition matches index ``jobs_live``."""
    return _count(jobs, jobs.c.project_id == project_id, jobs.c.finished_at.is_(None))


def _files(project_id: str) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions for uploaded files: result files never count against limits."""
    conditions = (files.c.project_id == project_id, files.c.deleted_at.is_(None))
    return (*conditions, files.c.purpose != PURPOSE_OF_RESULTS)


def _count(table: Any, *conditions: ColumnElement[bool]) -> ScalarSelect[int]:  # noqa: ANN401 - a table
    return select(func.count()).select_from(table).where(*conditions).scalar_subquery()


def _sum(column: Any, *conditions: ColumnElement[bool]) -> ScalarSelect[int]:  # noqa: ANN401 - of bytes
    total = cast(func.coalesce(func.sum(column), 0), BigInteger)
    return select(total).where(*conditions).scalar_subquery()


_PROJECT: BindParameter[str] = bindparam("project_id", type_=Text)
_LIVE_JOBS = select(
    _live_jobs(_PROJECT),
    select(project_limits.c.live_jobs)
    .where(project_limits.c.project_id == _PROJECT)
    .scalar_subquery(),
)
