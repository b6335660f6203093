"""Parts of uploads: what of a file is staged in Blob and not committed yet."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.schema.columns import among
from service.db.schema.file_tables import upload_parts


@dataclass(frozen=True, kw_only=True)
class Part:
    """One row."""

    id: str
    upload_id: str  # of the row, which is the id of the file to be
    bytes: int
    md5: str  # hexadecimal
    blocks: int  # staged
    created_at: datetime


_COLUMNS = [upload_parts.c[name] for name in Part.__dataclass_fields__]


async def add(conn: AsyncConnection, part: Part) -> None:
    """Keep a part whose blocks are staged."""
    await conn.execute(insert(upload_parts).values(vars(part)))


async def all_of(conn: AsyncConnection, upload_id: str) -> list[Part]:
    """The parts of an upload, oldest first."""
    query = select(*_COLUMNS).where(upload_parts.c.upload_id == upload_id)
    rows = await conn.execute(query.order_by(upload_parts.c.id))
    return [Part(**row) for row in rows.mappings()]


async def totals(conn: AsyncConnection, upload_id: str) -> tuple[int, int]:
    """Return how many parts of an upload there are, and how many bytes."""
    size = func.coalesce(func.sum(upload_parts.c.bytes), 0)
    query = select(func.count(), size).where(upload_parts.c.upload_id == upload_id)
    count, total = (await conn.execute(query)).one()
    return count, int(total)


async def drop(conn: AsyncConnection, ids: Sequence[str]) -> None:
    """Forget these parts: their blocks are not in the blob."""
    await conn.execute(delete(upload_parts).where(among(upload_parts.c.id, ids)))
