"""Raise and read a job's version: a number that grows with every change that pollers await."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.core import locks, notify
from service.db.schema.tables import jobs

_RAISE_TEMPLATE = """
with notified as (
  update jobs set version = version + 1, updated_at = greatest(updated_at, :now) {more}
  where id = any(:ids) returning id
)
select pg_notify(:channel, 'job:' || id) from notified
"""
KIND = "job"  # of the topics
_RAISE = text(_RAISE_TEMPLATE.format(more=""))
_RAISE_DUE = text(_RAISE_TEMPLATE.format(more=", due_at = least(due_at, :now), hints = hints + 1"))


def topic(job_id: str) -> str:
    """Return the topic that is notified whenever the job's version grows."""
    return f"{KIND}:{job_id}"


def job_of(topic: str) -> str:
    """Return the job whose topic this is."""
    return topic.removeprefix(f"{KIND}:")


async def raise_version(
    conn: AsyncConnection,
    job_id: str,
    now: datetime,
    **values: Any,  # noqa: ANN401 - columns
) -> datetime | None:
    """Raise the job's version, write ``values``, and wake its listeners at commit.

    Returns the new time of its last update, which never runs backwards; None if there is no job.
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
    """Raise versions of many jobs, locked in one order; ``due``: make them due now, too."""
    if not job_ids:
        return
    ids = list(set(job_ids))
    await locks.before_writing(conn, jobs, ids)
    parameters = {"ids": ids, "now": now, "channel": notify.CHANNEL}
    await conn.execute(_RAISE_DUE if due else _RAISE, parameters)


async def current(conn: AsyncConnection, job_id: str, project_id: str) -> int | None:
    """Return the job's version; None if the project has no such job."""
    query = select(jobs.c.version).where(jobs.c.id == job_id, jobs.c.project_id == project_id)
    return (await conn.execute(query)).scalar_one_or_none()
