"""Make the result file of a job that succeeded: a row with its size, and bytes on demand.

The metrics of such a job no longer change, so every read makes the same bytes. Nothing is stored
twice, and a job needs only the database to succeed.
"""

import hashlib
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

from sqlalchemy import Row, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.jobs import job_versions, step_metrics
from service.db.schema.file_tables import files
from service.db.schema.tables import jobs
from service.domain.ids import new_id
from service.domain.reporting import result_file

_LINES = 1000


async def add_file(conn: AsyncConnection, job: Row[Any], now: datetime) -> str:
    """Write the row of the file, in the transaction of the job's success; return its id."""
    digest, size = hashlib.sha256(), 0
    async for chunk in content(conn, job.id):
        digest.update(chunk)
        size += len(chunk)
    row = {"id": new_id("file", now), "project_id": job.project_id, "created_at": now}
    row |= {"filename": result_file.FILENAME, "purpose": result_file.PURPOSE}
    row |= {"bytes": size, "sha256": digest.hexdigest()}
    row |= {"examples": 0, "characters": 0, "mean_tokens": 0}
    await conn.execute(insert(files).values(row))
    return str(row["id"])


async def content(conn: AsyncConnection, job_id: str) -> AsyncIterator[bytes]:
    """Yield the content of the job's result file in parts."""
    columns = result_file.columns(
        margins=await step_metrics.has_figure(conn, job_id, "margin"),
        rewards=await step_metrics.has_figure(conn, job_id, "reward"),
    )
    lines = [result_file.header(columns)]
    async for row in step_metrics.all_of(conn, job_id):
        lines.append(result_file.line(columns, row))
        if len(lines) >= _LINES:
            yield "".join(lines).encode()
            lines.clear()
    yield "".join(lines).encode()


async def forget(conn: AsyncConnection, file_id: str, now: datetime) -> None:
    """Remove a deleted file from the job whose result it is."""
    if (job_id := await job_of(conn, file_id)) is not None:
        await job_versions.raise_version(conn, job_id, now, result_file=None)


async def job_of(conn: AsyncConnection, file_id: str) -> str | None:
    """Return the id of the job whose result this file is; None if it is no result."""
    query = select(jobs.c.id).where(jobs.c.result_file == file_id)
    return (await conn.execute(query)).scalar_one_or_none()
