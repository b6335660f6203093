"""Revoke the nodes' write access by deleting a stored access policy of their job's container.

The policies of a container follow from the rows of its job's attempts and are always written all at
once. Writing them twice is harmless, and a late writer writes the current ones.

Without an account key there are no policies. A node's URL then expires by itself, and its lifetime
is how long a node of an ended attempt can still write.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.storage import access_policies as rows
from service.storage.store import POLICIES, BlobNotFound, BlobStore

WRITE = "racwdl"  # Azure's letters: read, add, create, write, delete, list
_MAX_TRIES = 3


async def update_policies(
    engine: AsyncEngine, store: BlobStore, job_id: str, lifetime: timedelta, now: datetime
) -> None:
    """Let nodes of attempts that have not ended write for ``lifetime``; revoke all other access.

    A container has room for five policies. Of more attempts (those that wait for their machines to
    be gone), the oldest get none. Azure needs up to 30 seconds to apply a new or a deleted policy.
    Raises StorageError.
    """
    until = now + lifetime
    chosen = await _newest(engine, job_id)
    for _ in range(_MAX_TRIES):
        try:
            expiry_by_attempt = dict.fromkeys(chosen, until)
            if store.has_access_policies:
                await store.set_access_policies(job_id, expiry_by_attempt, permissions=WRITE)
        except BlobNotFound:
            if chosen:
                raise
        async with engine.begin() as conn:
            before, chosen = chosen, (await rows.going_on(conn, job_id))[:POLICIES]
            if chosen == before:
                await rows.record(conn, job_id, chosen, until)
                return


async def _newest(engine: AsyncEngine, job_id: str) -> Sequence[str]:
    async with engine.connect() as conn:
        return (await rows.going_on(conn, job_id))[:POLICIES]


async def container_url(
    store: BlobStore, job_id: str, attempt_id: str, expires_at: datetime
) -> str:
    """Return the URL by which the attempt's nodes write to the job's container.

    It is valid as long as the attempt's policy or, without policies, until ``expires_at``. Raises
    StorageError.
    """
    if store.has_access_policies:
        return store.policy_url(job_id, attempt_id)
    return await store.sas_url(job_id, permissions=WRITE, expires_at=expires_at)
