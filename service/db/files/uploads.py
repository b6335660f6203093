"""Uploads under way, in one request or in parts, until their rows become rows of files.

The row of an upload that is given up stays, hidden, until its blob is seen to be gone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ARRAY, Text, all_, delete, insert, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.core import notify
from service.db.schema.file_tables import uploads

LIFE = timedelta(hours=1)  # without news; then an upload is given up


@dataclass(frozen=True, kw_only=True)
class Upload:
    """One row; ``id`` is the one that the file will have."""

    id: str
    project_id: str
    filename: str
    purpose: str
    expected_bytes: int | None  # of the whole request, or of the file that comes in parts
    received_bytes: int  # of one in parts: how many were checked
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
        """When it is given up, unless something comes."""
        return self.touched_at + LIFE

    def has_expired(self, now: datetime) -> bool:
        """Tell whether its time was over when it ended, or is over now."""
        return (self.given_up_at or now) >= self.expires_at


_COLUMNS = [uploads.c[name] for name in Upload.__dataclass_fields__]
_UNDER_WAY = uploads.c.given_up_at.is_(None)
_IN_PARTS = uploads.c.mime_type.is_not(None)


def topic(upload_id: str) -> str:
    """What is notified when an upload in parts is over, or a claim on it ends."""
    return f"upload:{upload_id}"


async def begin(conn: AsyncConnection, upload: Upload) -> None:
    """Write the intent, before there is a blob."""
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
    """Say how far it is; False if it was given up or is claimed by another request."""
    progress = {"touched_at": now, "received_bytes": received_bytes, "examples": examples}
    mine = update(uploads).where(*_held(upload_id, claim)).values(progress)
    return (await conn.execute(mine.returning(uploads.c.id))).one_or_none() is not None


async def end(conn: AsyncConnection, upload_id: str, *, claim: str | None = None) -> bool:
    """Drop the row, for a file's; False as ``touch``."""
    gone = delete(uploads).where(*_held(upload_id, claim)).returning(uploads.c.id)
    ended = (await conn.execute(gone)).one_or_none() is not None
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
    """It failed; no harm when it is over, or another request's."""
    mine = update(uploads).where(*_held(upload_id, claim))
    await conn.execute(mine.values(given_up_at=now, refusal=refusal))
    if claim is not None:
        await notify.notify(conn, topic(upload_id))


async def give_up_still(
    conn: AsyncConnection, untouched_since: datetime, now: datetime
) -> list[str]:
    """Give up those that stand still (or whose process died); return their ids."""
    still = update(uploads).where(uploads.c.touched_at < untouched_since, _UNDER_WAY)
    gone = await conn.execute(still.values(given_up_at=now).returning(uploads.c.id))
    return list(gone.scalars())


async def forget(conn: AsyncConnection, given_up_until: datetime, *, kept: Sequence[str]) -> None:
    """Drop the rows of those given up by then, but for those whose blobs are still there."""
    others = uploads.c.id != all_(literal(list(kept), ARRAY(Text)))
    await conn.execute(delete(uploads).where(uploads.c.given_up_at <= given_up_until, others))


async def find(conn: AsyncConnection, project_id: str, upload_id: str) -> Upload | None:
    """The upload, unless it is unknown, over or another project's."""
    mine = (uploads.c.id == upload_id, uploads.c.project_id == project_id, _UNDER_WAY)
    row = (await conn.execute(select(*_COLUMNS).where(*mine))).mappings().one_or_none()
    return Upload(**row) if row else None


async def newest(
    conn: AsyncConnection, project_id: str, *, after: str | None, limit: int
) -> list[Upload]:
    """Those under way in one request, newest first, beyond ``after``."""
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
    """The upload in parts, also one that was given up; ``lock``: up to our commit."""
    mine = (uploads.c.id == upload_id, uploads.c.project_id == project_id, _IN_PARTS)
    query = select(*_COLUMNS).where(*mine)
    if lock:
        query = query.with_for_update(key_share=True)
    row = (await conn.execute(query)).mappings().one_or_none()
    return Upload(**row) if row else None


async def claim(conn: AsyncConnection, upload_id: str, token: str, now: datetime) -> None:
    """Let this request complete it; the caller has locked the row and found that it may."""
    mine = update(uploads).where(uploads.c.id == upload_id, _UNDER_WAY)
    fresh = {"claim": token, "touched_at": now, "received_bytes": 0, "examples": 0}
    await conn.execute(mine.values(fresh))


async def release(conn: AsyncConnection, upload_id: str, token: str) -> None:
    """Let another request complete it."""
    mine = update(uploads).where(*_held(upload_id, token))
    await conn.execute(mine.values(claim=None))
    await notify.notify(conn, topic(upload_id))


async def given_up_in_parts(conn: AsyncConnection) -> list[str]:
    """Return the ids of all whose staged blocks may still be there."""
    query = select(uploads.c.id).where(uploads.c.given_up_at.is_not(None), _IN_PARTS)
    return list((await conn.execute(query.order_by(uploads.c.id))).scalars())


def _held(upload_id: str, claim: str | None) -> tuple[Any, ...]:
    """Conditions on the row of who holds it: a request of its own, or one that claimed it."""
    return (uploads.c.id == upload_id, uploads.c.claim.is_not_distinct_from(claim), _UNDER_WAY)
