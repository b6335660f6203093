"""A job's version: a number that grows with every news of the job, so that nobody polls in vain."""

from datetime import datetime
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db import notices
from service.db.tables import jobs


def topic(job_id: str) -> str:
    """What is notified whenever the job's version grows."""
    return f"job:{job_id}"


async def raise_one(
    conn: AsyncConnection,
    job_id: str,
    now: datetime,
    **values: Any,  # noqa: ANN401 - columns
) -> None:
    """The job has news (and these new values): wake whoever waits for it, at commit."""
    c = jobs.c
    later = func.greatest(c.updated_at, now)  # replicas' clocks differ; time never runs backwards
    news = {"version": c.version + 1, "updated_at": later, **values}
    await conn.execute(update(jobs).where(c.id == job_id).values(news))
    await notices.notify(conn, topic(job_id))


async def current(conn: AsyncConnection, job_id: str, project_id: str) -> int | None:
    """The version now; None when the project has no such job."""
    query = select(jobs.c.version).where(jobs.c.id == job_id, jobs.c.project_id == project_id)
    return (await conn.execute(query)).scalar_one_or_none()
