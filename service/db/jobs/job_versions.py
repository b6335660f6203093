"""A job's version: a number that grows with every news of the job, so that nobody polls in vain."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.core import locks, notify
from service.db.schema.tables import jobs

_NEWS = """
with told as (
  update jobs set version = version + 1, updated_at = greatest(updated_at, :now) {more}
  where id = any(:ids) returning id
)
select pg_notify(:channel, 'job:' || id) from told
"""
KIND = "job"  # of the topics
_RAISE = text(_NEWS.format(more=""))
_RAISE_DUE = text(_NEWS.format(more=", due_at = least(due_at, :now), hints = hints + 1"))


def topic(job_id: str) -> str:
    """What is notified whenever the job's version grows."""
    return f"{KIND}:{job_id}"


def job_of(topic: str) -> str:
    """Return the job whose topic this is."""
    return topic.removeprefix(f"{KIND}:")


async def raise_one(
    conn: AsyncConnection,
    job_id: str,
    now: datetime,
    **values: Any,  # noqa: ANN401 - columns
) -> datetime | None:
    """The job has news (and these new values): wake whoever waits for it, at commit.

    Returns since when, which is never before any news that it had; None where there is no job.
    """
    c = jobs.c
    later = func.greatest(c.updated_at, now)  # replicas' clocks differ; time never runs backwards
    news = {"version": c.version + 1, "updated_at": later, **values}
    raised = update(jobs).where(c.id == job_id).values(news).returning(c.updated_at)
    at: datetime | None = (await conn.execute(raised)).scalar_one_or_none()
    await notify.notify(conn, topic(job_id))
    return at


async def raise_all(
    conn: AsyncConnection, job_ids: Collection[str], now: datetime, *, due: bool = False
) -> None:
    """The same of many jobs, which are locked in one order; ``due``: their reconciler looks now."""
    if not job_ids:
        return
    ids = list(set(job_ids))
    await locks.before_writing(conn, jobs, ids)
    given = {"ids": ids, "now": now, "channel": notify.CHANNEL}
    await conn.execute(_RAISE_DUE if due else _RAISE, given)


async def current(conn: AsyncConnection, job_id: str, project_id: str) -> int | None:
    """The version now; None when the project has no such job."""
    query = select(jobs.c.version).where(jobs.c.id == job_id, jobs.c.project_id == project_id)
    return (await conn.execute(query)).scalar_one_or_none()
