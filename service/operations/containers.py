"""Containers of jobs: which of them belong to no job that the database knows.

No route deletes a job, so a container has lost its row only where the database was restored, or
where another service keeps its jobs in the same account. A row is committed before its container
is made, and containers are listed before rows are read: one that was just made is known.
"""

from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.schema.columns import among
from service.db.schema.tables import jobs
from service.domain.models.lineage import JOB
from service.storage.store import BlobStore

# Not for new jobs (see above): it is told once, so nothing that comes and goes may use it up.
GRACE = timedelta(hours=1)
_AT_ONCE = 10_000  # ids in one query


async def unknown(engine: AsyncEngine, store: BlobStore, now: datetime) -> list[str]:
    """Their names, of those that have been there for a while. Raises StorageError."""
    listed = await store.list_containers(JOB)
    old = [c.name for c in listed if now - c.modified_at >= GRACE]
    known: set[str] = set()
    for start in range(0, len(old), _AT_ONCE):
        query = select(jobs.c.id).where(among(jobs.c.id, old[start : start + _AT_ONCE]))
        async with engine.connect() as conn:
            known.update((await conn.execute(query)).scalars())
    return [name for name in old if name not in known]
