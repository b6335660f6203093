"""Uploads: so that others see how far one is, none becomes a file late, and none leaves bytes.

One that is given up keeps its row, hidden, until its blob is seen to be gone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ARRAY, Text, all_, delete, insert, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.tables import uploads


@dataclass(frozen=True, kw_only=True)
class Upload:
    """One row; ``id`` is the one that the file will have."""

    id: str
    project_id: str
    filename: str
    purpose: str
    expected_bytes: int | None  # of the whole request, which is a little more than the file
    received_bytes: int
    examples: int  # checked so far
    created_at: datetime
    touched_at: datetime


_COLUMNS = [uploads.c[name] for name in Upload.__dataclass_fields__]
_UNDER_WAY = uploads.c.given_up_at.is_(None)


async def begin(conn: AsyncConnection, upload: Upload) -> None:
    """Write the intent, before there is a blob."""
    await conn.execute(insert(uploads).values(vars(upload)))


async def touch(
    conn: AsyncConnection, upload_id: str, now: datetime, received_bytes: int, examples: int
) -> bool:
    """Say how far it is; False if it was given up."""
    progress = {"touched_at": now, "received_bytes": received_bytes, "examples": examples}
    mine = update(uploads).where(uploads.c.id == upload_id, _UNDER_WAY).values(progress)
    return (await conn.execute(mine.returning(uploads.c.id))).one_or_none() is not None


async def end(conn: AsyncConnection, upload_id: str) -> bool:
    """Drop the row, for a file's; False if it was given up."""
    gone = delete(uploads).where(uploads.c.id == upload_id, _UNDER_WAY).returning(uploads.c.id)
    return (await conn.execute(gone)).one_or_none() is not None


async def give_up(conn: AsyncConnection, upload_id: str, now: datetime) -> None:
    """It failed; no harm when it is over."""
    mine = update(uploads).where(uploads.c.id == upload_id, _UNDER_WAY)
    await conn.execute(mine.values(given_up_at=now))


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
    """Those under way, newest first, beyond ``after``."""
    query = select(*_COLUMNS).where(uploads.c.project_id == project_id, _UNDER_WAY)
    if after:
        query = query.where(uploads.c.id < after)
    rows = await conn.execute(query.order_by(uploads.c.id.desc()).limit(limit))
    return [Upload(**r) for r in rows.mappings()]
