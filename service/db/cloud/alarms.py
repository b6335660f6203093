"""Remember what sweeps found that should not exist: since when, and its last alarm.

Replicas share these rows: one of them raises each alarm, and a restart forgets nothing.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import ARRAY, Text, all_, delete, literal, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.schema.cloud_tables import alarms
from service.db.schema.columns import among

_ADD = text("""
insert into alarms (kind, name, since)
select :kind, name, :now from unnest(cast(:names as text[])) as g (name)
order by name on conflict (kind, name) do update set since = least(alarms.since, excluded.since)
""")  # `least`: the clock of a replica may have been ahead


async def record(
    conn: AsyncConnection,
    kind: str,
    names: Collection[str],
    now: datetime,
    *,
    is_complete: bool = True,
) -> dict[str, datetime]:
    """Record what a sweep found now; return since when each exists.

    ``is_complete``: the list is complete, so earlier findings that are not in it are deleted.
    """
    c = alarms.c
    if is_complete:
        unlisted = c.name != all_(literal(list(names), ARRAY(Text)))
        await conn.execute(delete(alarms).where(c.kind == kind, unlisted))
    await conn.execute(_ADD, {"kind": kind, "names": list(names), "now": now})
    rows = await conn.execute(select(c.name, c.since).where(c.kind == kind, among(c.name, names)))
    return {row.name: row.since for row in rows}


async def claim(
    conn: AsyncConnection,
    kind: str,
    names: Collection[str],
    now: datetime,
    repeat_after: timedelta | None = None,
) -> list[str]:
    """Return the names whose alarm the caller must raise now, in order; no other replica gets them.

    ``repeat_after``: the time after which an alarm is repeated; None: never.
    """
    c = alarms.c
    # A time far ahead was set by a wrong clock.
    later = (
        (c.told_at <= now - repeat_after, c.told_at > now + repeat_after) if repeat_after else ()
    )
    due = or_(c.told_at.is_(None), *later)
    statement = update(alarms).where(c.kind == kind, among(c.name, names), due).values(told_at=now)
    return sorted((await conn.execute(statement.returning(c.name))).scalars())
