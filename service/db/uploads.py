"""Uploads under way: so that others can see how far one is, and none takes a file's place late."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, insert, select, update
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


async def begin(conn: AsyncConnection, upload: Upload) -> None:
    """Write the intent, before there is a blob."""
    await conn.execute(insert(uploads).values(vars(upload)))


async def touch(
    conn: AsyncConnection, upload_id: str, now: datetime, received_bytes: int, examples: int
) -> None:
    """Say how far it is."""
    progress = {"touched_at": now, "received_bytes": received_bytes, "examples": examples}
    await conn.execute(update(uploads).where(uploads.c.id == upload_id).values(progress))


async def end(conn: AsyncConnection, upload_id: str) -> bool:
    """Drop the row; False if it was given up by ``forget_still``."""
    gone = delete(uploads).where(uploads.c.id == upload_id).returning(uploads.c.id)
    return (await conn.execute(gone)).one_or_none() is not None


async def forget_still(conn: AsyncConnection, untouched_since: datetime) -> list[str]:
    """Drop the rows of uploads that stand still (or whose process died); return their ids."""
    gone = delete(uploads).where(uploads.c.touched_at < untouched_since).returning(uploads.c.id)
    return list((await conn.execute(gone)).scalars())


async def find(conn: AsyncConnection, project_id: str, upload_id: str) -> Upload | None:
    """The upload, unless it is unknown, over or another project's."""
    mine = (uploads.c.id == upload_id, uploads.c.project_id == project_id)
    row = (await conn.execute(select(*_COLUMNS).where(*mine))).mappings().one_or_none()
    return Upload(**row) if row else None


async def newest(
    conn: AsyncConnection, project_id: str, *, after: str | None, limit: int
) -> list[Upload]:
    """Those under way, newest first, beyond ``after``."""
    query = select(*_COLUMNS).where(uploads.c.project_id == project_id)
    if after:
        query = query.where(uploads.c.id < after)
    rows = await conn.execute(query.order_by(uploads.c.id.desc()).limit(limit))
    return [Upload(**r) for r in rows.mappings()]
