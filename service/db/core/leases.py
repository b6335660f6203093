"""Lease due rows: a worker claims a row, works outside any transaction, then writes back.

A row may be written only with the lease token it was claimed with. A hint that arrives
while the row is claimed is not lost: the row is due again at once when it is released.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from sqlalchemy import (
    ColumnElement,
    Integer,
    Row,
    Select,
    Table,
    Update,
    bindparam,
    case,
    func,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.core import locks, notify
from service.db.schema.columns import Moment, among
from service.domain.cloud.rate_limit import Deferral
from service.domain.errors import LeaseLost

LEASE = timedelta(seconds=6)  # how long a killed worker's rows stay claimed
RENEW_SECONDS = 2.0
YIELD = timedelta(seconds=30)  # longest wait of other rows for urgent ones: an eviction notice
_RELEASE_SQL = """
with given as (
  select * from unnest(
    cast(:ids as text[]), cast(:tokens as text[]), cast(:states as text[]),
    cast(:hints as bigint[]), cast(:due as timestamptz[]),
    cast(:calls as text[]), cast(:untils as timestamptz[])
  ) as g (id, token, state, hints, due_at, call, until)
)
update {table} t set lease_token = null, lease_expires_at = null,
  due_at = case when t.hints <> g.hints then :now else g.due_at end{more}
from given g where t.id = g.id and t.lease_token = g.token and t.state = g.state
returning t.id
"""
_ENQUEUE_BY_SQL = """
with given as (
  select * from unnest(cast(:ids as text[]), cast(:ats as timestamptz[])) as g (id, at)
)
update {table} t set due_at = g.at from given g where t.id = g.id and t.due_at > g.at
"""
_STATES = ("jobs", "attempts")  # tables with a column `state`
_DEFERRAL = ", deferred_call = g.call, deferred_until = g.until"
_RELEASE = {
    "jobs": text(_RELEASE_SQL.format(table="jobs", more="")),
    "attempts": text(_RELEASE_SQL.format(table="attempts", more=_DEFERRAL)),
}
_ENQUEUE_BY = {table: text(_ENQUEUE_BY_SQL.format(table=table)) for table in _STATES}


@dataclass(frozen=True)
class Claim:
    """The right to write one row until the lease ends."""

    table: Table
    row_id: str
    token: str
    hints: int
    row: Row[Any]


@dataclass(frozen=True)
class DueQuery:
    """Query for the due rows of a table, built once: it runs some ten times a second."""

    table: Table
    first: Select[Any]


def due(
    table: Table, live: ColumnElement[bool], urgent: ColumnElement[bool] | None = None
) -> DueQuery:
    """Build the query of ``claim_due``: ``live`` rows that are due and not leased.

    Earliest deadline first; with ``urgent``, the other rows may wait YIELD longer.
    """
    now, c = bindparam("at", type_=Moment), table.c
    free = or_(c.lease_expires_at.is_(None), c.lease_expires_at < now)
    by = c.due_at if urgent is None else c.due_at + case((urgent, timedelta(0)), else_=YIELD)
    first = (
        select(c.id)
        .where(live, c.due_at <= now, free)
        .order_by(by)
        .limit(bindparam("most", type_=Integer))
        .with_for_update(skip_locked=True, key_share=True)
    )
    return DueQuery(table, first)


async def claim_due(conn: AsyncConnection, due: DueQuery, now: datetime, limit: int) -> list[Claim]:
    """Lease up to ``limit`` due rows; no other worker gets them meanwhile."""
    ids = list((await conn.execute(due.first, {"at": now, "most": limit})).scalars())
    if not ids:
        return []
    token = uuid4().hex
    lease = {"lease_token": token, "lease_expires_at": now + LEASE}
    statement = (
        update(due.table).where(among(due.table.c.id, ids)).values(lease).returning(due.table)
    )
    return [Claim(due.table, r.id, token, r.hints, r) for r in await conn.execute(statement)]


class LeaseRenewer:
    """Renews leases in the background for as long as their steps take, all of a table together."""

    def __init__(
        self, engine: AsyncEngine, now: Callable[[], datetime], interval: float = RENEW_SECONDS
    ) -> None:
        self._engine, self._now, self._every = engine, now, interval
        self._held: dict[str, list[Claim]] = {}  # by table
        self._renewing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def renewing(self, claim: Claim) -> AsyncIterator[None]:
        """Renew the claim's lease until the block ends."""
        claims = self._held.setdefault(claim.table.name, [])
        claims.append(claim)
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew())
        try:
            yield
        finally:
            claims.remove(claim)
            if not any(self._held.values()):
                idle, self._renewing = self._renewing, None
                if idle is not None:
                    idle.cancel()
                    await asyncio.gather(idle, return_exceptions=True)

    async def _renew(self) -> None:
        """Renew all held leases periodically; the next write of a step detects a lost one."""
        while True:
            await asyncio.sleep(self._every)
            for claims in [list(group) for group in self._held.values() if group]:
                c = claims[0].table.c
                tokens = {claim.token for claim in claims}
                conditions = (among(c.id, (x.row_id for x in claims)), among(c.lease_token, tokens))
                query = select(c.id).where(*conditions).order_by(c.id)
                # Skip locked rows: the other leases would expire while this waits for one.
                query = query.with_for_update(key_share=True, skip_locked=True)
                with suppress(SQLAlchemyError):  # the database is away: retry next round
                    async with self._engine.begin() as conn:
                        ids = (await conn.execute(query)).scalars()
                        later = update(claims[0].table).where(among(c.id, ids))
                        await conn.execute(later.values(lease_expires_at=self._now() + LEASE))


@asynccontextmanager
async def renewing(
    engine: AsyncEngine,
    claim: Claim,
    now: Callable[[], datetime],
    interval: float = RENEW_SECONDS,
) -> AsyncIterator[None]:
    """Renew one lease in the background for as long as its step takes."""
    async with LeaseRenewer(engine, now, interval).renewing(claim):
        yield


async def write(conn: AsyncConnection, claim: Claim, **values: object) -> None:
    """Change the claimed row and keep the lease, or raise LeaseLost."""
    statement = update(claim.table).where(*_lease_conditions(claim))
    done = await conn.execute(statement.values(**values).returning(claim.table.c.id))
    if done.one_or_none() is None:
        raise LeaseLost(f"{claim.table.name} {claim.row_id}")


async def release(
    conn: AsyncConnection,
    claim: Claim,
    now: datetime,
    due_at: datetime,
    **values: object,
) -> None:
    """Write ``values``, release the lease and set the due time, or raise LeaseLost.

    ``values`` may hold the new state of a move; the caller has checked that the move exists.
    Clears the row's deferred call unless ``values`` hold one.
    """
    if "deferred_call" in claim.table.c:
        values = {"deferred_call": None, "deferred_until": None} | values
    hinted = claim.table.c.hints != claim.hints
    await write(
        conn,
        claim,
        lease_token=None,
        lease_expires_at=None,
        due_at=case((hinted, now), else_=due_at),
        **values,
    )


async def release_all(
    conn: AsyncConnection,
    releases: Sequence[tuple[Claim, datetime]],
    now: datetime,
    deferrals: Mapping[str, Deferral] = MappingProxyType({}),
) -> set[str]:
    """Release many rows of one table, each with its due time; return those whose lease held.

    Rows are locked in one order, so that two batches cannot deadlock. ``deferrals``: by row, the
    deferred calls to keep; all others are cleared.
    """
    if not releases:
        return set()
    (table,) = {claim.table for claim, _ in releases}
    values: dict[str, list[Any]] = {
        "ids": [claim.row_id for claim, _ in releases],
        "tokens": [claim.token for claim, _ in releases],
        "states": [claim.row.state for claim, _ in releases],
        "hints": [claim.hints for claim, _ in releases],
        "due": [due_at for _, due_at in releases],
    }
    retained = [deferrals.get(claim.row_id) for claim, _ in releases]
    values["calls"] = [deferral.call if deferral else None for deferral in retained]
    values["untils"] = [deferral.until if deferral else None for deferral in retained]
    leased = among(table.c.lease_token, values["tokens"])
    await locks.before_writing(conn, table, values["ids"], leased)
    done = await conn.execute(_RELEASE[table.name], values | {"now": now})
    return set(done.scalars())


async def enqueue_all(
    conn: AsyncConnection, table: Table, row_ids: Iterable[str], now: datetime
) -> None:
    """Make rows due now, and wake every reconciler; lock the rows in one order."""
    if ids := list(row_ids):
        await locks.before_writing(conn, table, ids)
        await conn.execute(_enqueued(table, now).where(among(table.c.id, ids)))
        await notify.notify(conn, notify.DUE)


async def lock_all_claimed(conn: AsyncConnection, claims: Sequence[Claim]) -> dict[str, int]:
    """Lock claimed rows of a table until the transaction ends; return those whose lease held.

    Each with its number of hints: more than the claim's mean news. Rows are locked in one order, so
    that two batches cannot deadlock.
    """
    table = claims[0].table
    by_id = {claim.row_id: claim for claim in claims}
    c = table.c
    columns = (c.id, c.lease_token, c.state, c.hints)
    query = select(*columns).where(among(c.id, by_id)).order_by(c.id)
    rows = await conn.execute(query.with_for_update(key_share=True))
    return {
        row.id: row.hints
        for row in rows
        if (row.lease_token, row.state) == (by_id[row.id].token, by_id[row.id].row.state)
    }


async def lock_claimed(conn: AsyncConnection, claim: Claim, *, unchanged: bool = False) -> None:
    """Lock the claimed row until the transaction ends, or raise LeaseLost.

    ``unchanged``: also raise it if the row has had a request or news since it was claimed.
    """
    same = [claim.table.c.hints == claim.hints] if unchanged else []
    query = (
        select(claim.table.c.id)
        .where(*_lease_conditions(claim), *same)
        .with_for_update(key_share=True)
    )
    if (await conn.execute(query)).one_or_none() is None:
        raise LeaseLost(f"{claim.table.name} {claim.row_id}")


async def check(conn: AsyncConnection, claim: Claim) -> None:
    """Raise LeaseLost if the row is not ours any more; for use right before an external effect."""
    query = select(claim.table.c.id).where(*_lease_conditions(claim))
    if (await conn.execute(query)).one_or_none() is None:
        raise LeaseLost(f"{claim.table.name} {claim.row_id}")


async def enqueue(conn: AsyncConnection, table: Table, row_id: str, now: datetime) -> None:
    """Make the row due now, and wake every reconciler at commit."""
    await conn.execute(_enqueued(table, now).where(table.c.id == row_id))
    await notify.notify(conn, notify.DUE)


async def enqueue_all_by(
    conn: AsyncConnection, table: Table, at: Mapping[str, datetime], now: datetime
) -> None:
    """Make rows due at the given times, unless they are due earlier or being worked on.

    Adds no hint: a row whose call to the cloud is deferred goes on waiting.
    """
    if not at:
        return
    by = {row_id: max(moment, now) for row_id, moment in at.items()}
    later = table.c.due_at > min(by.values())
    if ids := await locks.lock_rows(conn, table, by, later):
        parameters = {"ids": ids, "ats": [by[id_] for id_ in ids]}
        await conn.execute(_ENQUEUE_BY[table.name], parameters)
    if now in by.values():
        await notify.notify(conn, notify.DUE)


def _enqueued(table: Table, now: datetime) -> Update:
    c = table.c
    return update(table).values(due_at=func.least(c.due_at, now), hints=c.hints + 1)


def _lease_conditions(claim: Claim) -> tuple[ColumnElement[bool], ...]:
    conditions = [claim.table.c.id == claim.row_id, claim.table.c.lease_token == claim.token]
    if "state" in claim.table.c:
        conditions.append(claim.table.c.state == claim.row.state)
    return tuple(conditions)
