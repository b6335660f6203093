"""Cache the list of all scale sets: one replica requests it, all read it."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from contract.choices import Engine
from service.db.schema.cloud_tables import cloud_listings
from service.db.schema.tables import attempts
from service.domain.cloud.fleet import ScaleSet, ScaleSetPhase, scale_set_name
from service.domain.cloud.rate_limit import CloudCall
from service.domain.cloud.scale_set_list import KnownScaleSet, ListedScaleSet, ScaleSetList
from service.domain.states import ATTEMPT_WITH_NODES, AttemptState

ALL = "all"  # the one scope: a resource group has the sets of every region


async def claim(conn: AsyncConnection, now: datetime, interval: timedelta) -> bool:
    """Claim this round's request for the list; return True to one replica.

    If that replica dies, another one claims the next round, ``interval`` later. A round more than
    two away was set by a clock that is ahead, and is ignored.
    """
    c = cloud_listings.c
    first = upsert(cloud_listings).values(scope=ALL, due_at=now).on_conflict_do_nothing()
    await conn.execute(first)
    due = or_(c.due_at <= now, c.due_at > now + 2 * interval)
    statement = update(cloud_listings).where(c.scope == ALL, due)
    claimed = await conn.execute(statement.values(due_at=now + interval).returning(c.scope))
    return claimed.one_or_none() is not None


async def publish(
    conn: AsyncConnection, listed_at: datetime, sets: Sequence[ScaleSet], ahead: datetime
) -> None:
    """Store the list unless a newer one is there.

    A stored list dated after ``ahead`` comes from a wrong clock, and is replaced.
    """
    c = cloud_listings.c
    older = or_(c.listed_at.is_(None), c.listed_at < listed_at, c.listed_at > ahead)
    scale_sets = {s.name: [s.phase, s.capacity] for s in sets}
    statement = update(cloud_listings).where(c.scope == ALL, older)
    await conn.execute(statement.values(listed_at=listed_at, sets=scale_sets))


async def latest(conn: AsyncConnection, after: datetime | None) -> ScaleSetList | None:
    """Return the newest list; None if there is none, or none newer than ``after``."""
    c = cloud_listings.c
    query = select(c.listed_at, c.sets).where(c.scope == ALL, c.listed_at.is_not(None))
    if after is not None:
        query = query.where(c.listed_at > after)
    row = (await conn.execute(query)).one_or_none()
    if row is None:
        return None
    sets = {
        name: ListedScaleSet(ScaleSetPhase(phase), count)
        for name, (phase, count) in row.sets.items()
    }
    return ScaleSetList(listed_at=row.listed_at, sets=sets)


async def known_scale_sets(conn: AsyncConnection) -> list[tuple[str, KnownScaleSet]]:
    """Return ids and scale sets of attempts with nodes or a deferred creation, from their rows."""
    c = attempts.c
    columns = (c.id, c.state, c.instance_count, c.vm_ids, c.seen_at, c.refilled_at)
    condition = or_(c.state.in_(ATTEMPT_WITH_NODES), c.deferred_call == CloudCall.CREATE)
    query = select(*columns, c.deferred_call).where(condition, c.engine == Engine.SCALE_SET)
    rows = await conn.execute(query)
    return [(row.id, known_scale_set(row)) for row in rows]


def known_scale_set(row: Any) -> KnownScaleSet:  # noqa: ANN401 - a row, or an object like one
    """Return an attempt's scale set as its row knows it."""
    return KnownScaleSet(
        name=scale_set_name(row.id),
        state=AttemptState(row.state),
        instance_count=row.instance_count,
        vm_ids=tuple(row.vm_ids),
        seen_at=row.seen_at,
        refilled_at=row.refilled_at,
        deferred_call=CloudCall(row.deferred_call) if row.deferred_call else None,
    )
