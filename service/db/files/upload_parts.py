"""Read and write parts of uploads: staged in Blob, not committed yet."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.schema.columns import among
from service.db.schema.file_tables import upload_parts


@dataclass(frozen=True, kw_only=True)
class UploadPartRow:
    """Row of a part."""

    id: str
    upload_id: str  # also the id of the future file
    bytes: int
    md5: str  # hexadecimal
    blocks: int  # staged
    created_at: datetime


_COLUMNS = [upload_parts.c[name] for name in UploadPartRow.__dataclass_fields__]


async def add(conn: AsyncConnection, part: UploadPartRow) -> None:
    """Write the row of a part whose blocks are staged."""
    await conn.execute(insert(upload_parts).values(vars(part)))


async def all_of(conn: AsyncConnection, upload_id: str) -> list[UploadPartRow]:
    """Return the parts of an upload, oldest first."""
    query = select(*_COLUMNS).where(upload_parts.c.upload_id == upload_id)
    rows = await conn.execute(query.order_by(upload_parts.c.id))
    return [UploadPartRow(**row) for row in rows.mappings()]


async def totals(conn: AsyncConnection, upload_id: str) -> tuple[int, int]:
    """Return how many parts of an upload there are, and how many bytes."""
    size = func.coalesce(func.sum(upload_parts.c.bytes), 0)
    query = select(func.count(), size).where(upload_parts.c.upload_id == upload_id)
    count, total = (await conn.execute(query)).one()
    return count, int(total)


async def drop(conn: AsyncConnection, ids: Sequence[str]) -> None:
    """Delete the rows of parts whose blocks are not in the blob."""
    await conn.execute(delete(upload_parts).where(among(upload_parts.c.id, ids)))
