"""Read and write uploads, in one request or in parts, until they become files.

The row of an abandoned upload stays, hidden, until its blob is seen to be gone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ARRAY, Text, all_, delete, insert, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.core import notify
from service.db.schema.file_tables import uploads

LIFE = timedelta(hours=1)  # without progress; then an upload is abandoned


@dataclass(frozen=True, kw_only=True)
class Upload:
    """Row of an upload; the file will have the same ``id``."""

    id: str
    project_id: str
    filename: str
    purpose: str
    expected_bytes: int | None  # of the whole request, or of the file that comes in parts
    received_bytes: int  # of an upload in parts: bytes checked
    examples: int  # checked so far
    created_at: datetime
    touched_at: datetime
    given_up_at: datetime | None = None
    mime_type: str | None = None  # of an upload in parts alone
    expires_after: int | None = None  # seconds
    claim: str | None = None  # token of the request that completes it
    refusal: dict[str, Any] | None = None  # why the whole file was refused

    @property
    def expires_at(self) -> datetime:
        """Return when the upload expires unless it makes progress."""
        return self.touched_at + LIFE

    def has_expired(self, now: datetime) -> bool:
        """Return whether the upload had expired when it was abandoned, or has by now."""
        return (self.given_up_at or now) >= self.expires_at


_COLUMNS = [uploads.c[name] for name in Upload.__dataclass_fields__]
_UNDER_WAY = uploads.c.given_up_at.is_(None)
_IN_PARTS = uploads.c.mime_type.is_not(None)


def topic(upload_id: str) -> str:
    """Return the topic that is notified when an upload in parts or a claim on it ends."""
    return f"upload:{upload_id}"


async def add(conn: AsyncConnection, upload: Upload) -> None:
    """Write the row of a new upload, the intent, before there is a blob."""
    await conn.execute(insert(uploads).values(vars(upload)))


async def touch(
    conn: AsyncConnection,
    upload_id: str,
    now: datetime,
    received_bytes: int,
    examples: int,
    *,
    claim: str | None = None,
) -> bool:
    """Record progress; return False if the upload is abandoned or another request claims it."""
    progress = {"touched_at": now, "received_bytes": received_bytes, "examples": examples}
    statement = update(uploads).where(*_claim_conditions(upload_id, claim)).values(progress)
    return (await conn.execute(statement.returning(uploads.c.id))).one_or_none() is not None


async def end(conn: AsyncConnection, upload_id: str, *, claim: str | None = None) -> bool:
    """Delete the row, which the row of a file replaces; return False as ``touch`` does."""
    statement = delete(uploads).where(*_claim_conditions(upload_id, claim)).returning(uploads.c.id)
    ended = (await conn.execute(statement)).one_or_none() is not None
    if claim is not None:
        await notify.notify(conn, topic(upload_id))
    return ended


async def give_up(
    conn: AsyncConnection,
    upload_id: str,
    now: datetime,
    *,
    claim: str | None = None,
    refusal: dict[str, Any] | None = None,
) -> None:
    """Abandon the upload; do nothing if it is over, or another request claims it."""
    statement = update(uploads).where(*_claim_conditions(upload_id, claim))
    await conn.execute(statement.values(given_up_at=now, refusal=refusal))
    if claim is not None:
        await notify.notify(conn, topic(upload_id))


async def give_up_still(
    conn: AsyncConnection, untouched_since: datetime, now: datetime
) -> list[str]:
    """Abandon uploads without progress since ``untouched_since``; return their ids."""
    statement = update(uploads).where(uploads.c.touched_at < untouched_since, _UNDER_WAY)
    abandoned = await conn.execute(statement.values(given_up_at=now).returning(uploads.c.id))
    return list(abandoned.scalars())


async def forget(
    conn: AsyncConnection, given_up_until: datetime, *, retained: Sequence[str]
) -> None:
    """Delete rows of uploads abandoned by ``given_up_until``, except those ``retained``."""
    condition = uploads.c.id != all_(literal(list(retained), ARRAY(Text)))
    await conn.execute(delete(uploads).where(uploads.c.given_up_at <= given_up_until, condition))


async def find(conn: AsyncConnection, project_id: str, upload_id: str) -> Upload | None:
    """Return the upload; None if it is unknown, over or another project's."""
    conditions = (uploads.c.id == upload_id, uploads.c.project_id == project_id, _UNDER_WAY)
    row = (await conn.execute(select(*_COLUMNS).where(*conditions))).mappings().one_or_none()
    return Upload(**row) if row else None


async def newest(
    conn: AsyncConnection, project_id: str, *, after: str | None, limit: int
) -> list[Upload]:
    """Return running uploads in one request, newest first, beyond ``after``."""
    kind = uploads.c.mime_type.is_(None)
    query = select(*_COLUMNS).where(uploads.c.project_id == project_id, _UNDER_WAY, kind)
    if after:
        query = query.where(uploads.c.id < after)
    rows = await conn.execute(query.order_by(uploads.c.id.desc()).limit(limit))
    return [Upload(**r) for r in rows.mappings()]


# --- uploads in parts ----------------------------------------------------------------------------


async def find_in_parts(
    conn: AsyncConnection, project_id: str, upload_id: str, *, lock: bool = False
) -> Upload | None:
    """Return the upload in parts, even if it was abandoned; None if there is none.

    ``lock``: lock the row until the transaction ends.
    """
    conditions = (uploads.c.id == upload_id, uploads.c.project_id == project_id, _IN_PARTS)
    query = select(*_COLUMNS).where(*conditions)
    if lock:
        query = query.with_for_update(key_share=True)
    row = (await conn.execute(query)).mappings().one_or_none()
    return Upload(**row) if row else None


async def claim(conn: AsyncConnection, upload_id: str, token: str, now: datetime) -> None:
    """Claim the upload for the request that completes it; the caller has locked its row."""
    statement = update(uploads).where(uploads.c.id == upload_id, _UNDER_WAY)
    values = {"claim": token, "touched_at": now, "received_bytes": 0, "examples": 0}
    await conn.execute(statement.values(values))


async def release(conn: AsyncConnection, upload_id: str, token: str) -> None:
    """Release the claim, so that another request can complete the upload."""
    statement = update(uploads).where(*_claim_conditions(upload_id, token))
    await conn.execute(statement.values(claim=None))
    await notify.notify(conn, topic(upload_id))


async def given_up_in_parts(conn: AsyncConnection) -> list[str]:
    """Return the ids of abandoned uploads in parts, whose staged blocks may still exist."""
    query = select(uploads.c.id).where(uploads.c.given_up_at.is_not(None), _IN_PARTS)
    return list((await conn.execute(query.order_by(uploads.c.id))).scalars())


def _claim_conditions(upload_id: str, claim: str | None) -> tuple[Any, ...]:
    """Return the conditions for a running upload with this claim; None: no claim."""
    return (uploads.c.id == upload_id, uploads.c.claim.is_not_distinct_from(claim), _UNDER_WAY)
