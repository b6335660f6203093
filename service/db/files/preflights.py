"""Read and write checks of data files: progress and results, by a key of all their inputs."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.schema.columns import among
from service.db.schema.storage_tables import preflights

ABANDONED = timedelta(seconds=30)  # without progress; then another replica restarts the check
REFUSED = timedelta(minutes=1)  # how long a refusal holds: its cause may have been the machine


@dataclass(frozen=True, kw_only=True)
class PreflightRow:
    """Row of a check."""

    key: str
    touched_at: datetime
    rows_done: int
    report: dict[str, Any] | None  # None: the check runs, or was refused
    refusal: dict[str, Any] | None  # code, message and parameter


_COLUMNS = [preflights.c[name] for name in PreflightRow.__dataclass_fields__]


async def find(conn: AsyncConnection, keys: Collection[str]) -> dict[str, PreflightRow]:
    """Return the known checks among ``keys``, by key."""
    rows = await conn.execute(select(*_COLUMNS).where(among(preflights.c.key, keys)))
    return {row.key: PreflightRow(**row._mapping) for row in rows}  # noqa: SLF001 - SQLAlchemy's API


async def claim(conn: AsyncConnection, key: str, now: datetime) -> bool:
    """Claim a new, refused or abandoned check; return whether the caller is to begin it."""
    c, values = preflights.c, {"touched_at": now, "rows_done": 0, "refusal": None}
    expired = or_(
        c.refusal.is_(None) & (c.touched_at < now - ABANDONED),
        c.refusal.is_not(None) & (c.touched_at < now - REFUSED),
    )
    query = insert(preflights).values(key=key, **values)
    query = query.on_conflict_do_update(
        index_elements=[c.key], set_=values, where=c.report.is_(None) & expired
    )
    return (await conn.execute(query.returning(c.key))).one_or_none() is not None


async def touch(conn: AsyncConnection, key: str, rows_done: int, now: datetime) -> None:
    """Record progress, which also shows that the check still runs."""
    await _write(conn, key, rows_done=rows_done, touched_at=now)


async def finish(
    conn: AsyncConnection, key: str, report: dict[str, Any], rows_done: int, now: datetime
) -> None:
    """Store the report of a finished check."""
    await _write(conn, key, report=report, rows_done=rows_done, touched_at=now)


async def refuse(conn: AsyncConnection, key: str, refusal: dict[str, Any], now: datetime) -> None:
    """Store why there can be no report."""
    await _write(conn, key, refusal=refusal, touched_at=now)


async def give_up(conn: AsyncConnection, key: str) -> None:
    """Delete an unfinished check, so that any replica can begin it again."""
    await conn.execute(
        delete(preflights).where(preflights.c.key == key, preflights.c.report.is_(None))
    )


async def prune(conn: AsyncConnection, before: datetime) -> None:
    """Delete checks that were not touched since ``before``."""
    await conn.execute(delete(preflights).where(preflights.c.touched_at < before))


async def _write(conn: AsyncConnection, key: str, **values: Any) -> None:  # noqa: ANN401
    await conn.execute(update(preflights).where(preflights.c.key == key).values(**values))
