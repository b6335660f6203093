"""Claiming rows: a worker leases what is due, works outside any transaction, then writes back.

A row may be written only with the lease token it was claimed with. A hint that arrives
while the row is claimed is not lost: the row is due again at once when it is released.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, Row, Table, case, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db import notices
from service.domain.errors import LeaseLost

LEASE = timedelta(seconds=6)  # how long the rows of a killed worker lie still
RENEW_SECONDS = 2.0


@dataclass(frozen=True)
class Claim:
    """The right to write one row until the lease ends."""

    table: Table
    row_id: str
    token: str
    hints: int
    row: Row[Any]


async def claim_due(
    conn: AsyncConnection, table: Table, live: ColumnElement[bool], now: datetime, limit: int
) -> list[Claim]:
    """Lease up to ``limit`` rows whose time has come; no other worker sees them meanwhile."""
    free = or_(table.c.lease_expires_at.is_(None), table.c.lease_expires_at < now)
    due = (
        select(table.c.id)
        .where(live, table.c.due_at <= now, free)
        .order_by(table.c.due_at)
        .limit(limit)
        .with_for_update(skip_locked=True, key_share=True)
    )
    token = uuid4().hex
    rows = await conn.execute(
        update(table)
        .where(table.c.id.in_(due.scalar_subquery()))
        .values(lease_token=token, lease_expires_at=now + LEASE)
        .returning(table)
    )
    return [Claim(table, r.id, token, r.hints, r) for r in rows]


@asynccontextmanager
async def kept(
    engine: AsyncEngine,
    claim: Claim,
    now: Callable[[], datetime],
    every: float = RENEW_SECONDS,
) -> AsyncIterator[None]:
    """Renew the lease in the background for as long as the step takes."""
    renewing = asyncio.create_task(_renew(engine, claim, now, every))
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)


async def write(conn: AsyncConnection, claim: Claim, **values: object) -> None:
    """Change the claimed row and keep the lease, or raise LeaseLost."""
    done = await conn.execute(
        update(claim.table).where(*_mine(claim)).values(**values).returning(claim.table.c.id)
    )
    if done.one_or_none() is None:
        raise LeaseLost(f"{claim.table.name} {claim.row_id}")


async def release(
    conn: AsyncConnection, claim: Claim, now: datetime, due_at: datetime, **values: object
) -> None:
    """Write ``values``, give the lease back and be due again at ``due_at``, or raise LeaseLost.

    ``values`` may hold the new state of a move; the caller has checked that the move exists.
    """
    hinted = claim.table.c.hints != claim.hints
    await write(
        conn,
        claim,
        lease_token=None,
        lease_expires_at=None,
        due_at=case((hinted, now), else_=due_at),
        **values,
    )


async def hint(conn: AsyncConnection, table: Table, row_id: str, now: datetime) -> None:
    """Ask for the row to be looked at now, and wake every reconciler at commit."""
    c = table.c
    await conn.execute(
        update(table)
        .where(c.id == row_id)
        .values(due_at=func.least(c.due_at, now), hints=c.hints + 1)
    )
    await notices.notify(conn, notices.DUE)


async def _renew(
    engine: AsyncEngine, claim: Claim, now: Callable[[], datetime], every: float
) -> None:
    """Until cancelled. A lease that is lost stays lost: the next write of the step finds out."""
    c = claim.table.c
    mine = (c.id == claim.row_id, c.lease_token == claim.token)
    while True:
        await asyncio.sleep(every)
        async with engine.begin() as conn:
            later = update(claim.table).where(*mine).values(lease_expires_at=now() + LEASE)
            await conn.execute(later)


def _mine(claim: Claim) -> tuple[ColumnElement[bool], ...]:
    mine = [claim.table.c.id == claim.row_id, claim.table.c.lease_token == claim.token]
    if "state" in claim.table.c:
        mine.append(claim.table.c.state == claim.row.state)
    return tuple(mine)
