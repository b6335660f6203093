"""Containers of jobs that the database does not know.

No route deletes a job, so a container without a row means that the database was restored, or that
another service keeps its jobs in the same account. A row is committed before its container is made,
and containers are listed before rows are read: a new container is always known.
"""

from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.schema.columns import among
from service.db.schema.tables import jobs
from service.domain.models.lineage import JOB
from service.storage.store import BlobStore

# Not for new jobs (see above): an alarm is raised once, so a temporary container must not use it.
GRACE = timedelta(hours=1)
_IDS_PER_QUERY = 10_000


async def list_unknown_containers(
    engine: AsyncEngine, store: BlobStore, now: datetime
) -> list[str]:
    """Return the names of unknown containers that are older than ``GRACE``. Raises StorageError."""
    containers = await store.list_containers(JOB)
    old = [c.name for c in containers if now - c.modified_at >= GRACE]
    known_ids: set[str] = set()
    for start in range(0, len(old), _IDS_PER_QUERY):
        query = select(jobs.c.id).where(among(jobs.c.id, old[start : start + _IDS_PER_QUERY]))
        async with engine.connect() as conn:
            known_ids.update((await conn.execute(query)).scalars())
    return [name for name in old if name not in known_ids]
