"""Read and write tier moves of folders: the intent is written first, the outcome last."""

from dataclasses import dataclass, fields
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, case, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.core import leases, notify
from service.db.core.leases import Claim
from service.db.schema.storage_tables import tier_moves
from service.db.schema.tables import checkpoints
from service.domain.storage.access_tiers import AccessTier, ArchivePriority, TierMoveOutcome


@dataclass(frozen=True, kw_only=True)
class TierMove:
    """Row of a move, with its checkpoint's step; None for the final model."""

    id: str
    job_id: str
    checkpoint_id: str | None
    path: str
    tier: AccessTier
    priority: ArchivePriority
    charge: Decimal
    asked_at: datetime
    expected_at: datetime | None
    ended_at: datetime | None
    outcome: TierMoveOutcome | None
    step: int | None


@dataclass(frozen=True, kw_only=True)
class CheckpointFolder:
    """Path of a committed checkpoint, the number of newer ones, and if it is a milestone."""

    id: str
    path: str
    step: int
    newer: int
    milestone: bool


@dataclass(frozen=True)
class TierMoveVersion:
    """Version of a folder's moves: changes when one is requested, claimed or ended."""

    requested: int
    ended: int
    due_at: datetime | None  # of the open move
    lease_token: str | None


_OPEN = tier_moves.c.ended_at.is_(None)
_DUE = leases.due(tier_moves, _OPEN)
_COLUMNS = [tier_moves.c[f.name] for f in fields(TierMove) if f.name != "step"]


async def folders(conn: AsyncConnection, job_id: str) -> list[CheckpointFolder]:
    """Return the job's existing checkpoints, newest first."""
    c = checkpoints.c
    order = (c.step.desc(), c.generation.desc())
    newer = (func.row_number().over(order_by=order) - 1).label("newer")
    milestone = (c.kept_as == "milestone").label("milestone")
    query = select(c.id, c.path, c.step, newer, milestone).where(
        c.job_id == job_id, c.dropped_at.is_(None), c.broken_because.is_(None)
    )
    rows = (await conn.execute(query.order_by(*order))).mappings()
    return [CheckpointFolder(**row) for row in rows]


async def has_folders(conn: AsyncConnection, job_id: str) -> bool:
    """Return whether the job has an existing checkpoint."""
    c = checkpoints.c
    conditions = (c.job_id == job_id, c.dropped_at.is_(None), c.broken_because.is_(None))
    return (await conn.execute(select(c.id).where(*conditions).limit(1))).first() is not None


async def mark(conn: AsyncConnection, job_id: str, path: str) -> TierMoveVersion:
    """Return the version of the folder's moves: equal marks mean that none has changed."""
    c = tier_moves.c
    query = select(
        func.count(),
        func.count(c.ended_at),
        func.max(c.due_at).filter(_OPEN),
        func.max(c.lease_token).filter(_OPEN),
    ).where(c.job_id == job_id, c.path == path)
    return TierMoveVersion(*(await conn.execute(query)).one())


async def take_over(conn: AsyncConnection, move: TierMove, now: datetime) -> None:
    """Take the move from its worker, and make it due only after the length of a lease."""
    statement = update(tier_moves).where(tier_moves.c.id == move.id, _OPEN)
    free = {"lease_token": None, "lease_expires_at": None}
    await conn.execute(statement.values(free | {"due_at": now + leases.LEASE}))


async def add(conn: AsyncConnection, move: TierMove, due_at: datetime) -> None:
    """Write a new move, and wake a reconciler."""
    row: dict[str, Any] = {n: v for n, v in vars(move).items() if n != "step"}
    await conn.execute(insert(tier_moves).values(row | {"due_at": due_at}))
    await notify.notify(conn, notify.DUE)


async def raise_priority(
    conn: AsyncConnection, move: TierMove, charge: Decimal, expected_at: datetime, now: datetime
) -> None:
    """Raise the move to high priority, with its new charge and expected end."""
    statement = update(tier_moves).where(tier_moves.c.id == move.id, _OPEN)
    values = {"priority": ArchivePriority.HIGH, "charge": charge, "expected_at": expected_at}
    await conn.execute(statement.values(values))
    await leases.enqueue(conn, tier_moves, move.id, now)


async def replace(conn: AsyncConnection, move: TierMove, not_moved: Decimal, now: datetime) -> None:
    """End the move as replaced; its charge drops by the part that was never moved."""
    c = tier_moves.c
    paid = _charge_if_begun(func.greatest(c.charge - not_moved, 0))
    values = {
        "ended_at": now,
        "outcome": TierMoveOutcome.REPLACED,
        "charge": paid,
        "lease_token": None,
    }
    await conn.execute(update(tier_moves).where(c.id == move.id, _OPEN).values(values))


async def open_for(conn: AsyncConnection, job_id: str, path: str) -> TierMove | None:
    """Return the folder's open move; None if there is none."""
    query = _query().where(tier_moves.c.job_id == job_id, tier_moves.c.path == path, _OPEN)
    row = (await conn.execute(query)).one_or_none()
    return _move(row) if row else None


async def open_of(conn: AsyncConnection, job_id: str) -> dict[str, TierMove]:
    """Return the open moves of the job's folders, by path."""
    rows = await conn.execute(_query().where(tier_moves.c.job_id == job_id, _OPEN))
    return {row.path: _move(row) for row in rows}


async def claim_due(
    conn: AsyncConnection, now: datetime, limit: int
) -> list[tuple[Claim, TierMove]]:
    """Lease up to ``limit`` moves that are due."""
    claims = await leases.claim_due(conn, _DUE, now, limit)
    if not claims:
        return []
    rows = await conn.execute(_query().where(tier_moves.c.id.in_([c.row_id for c in claims])))
    moves = {row.id: _move(row) for row in rows}
    return [(claim, moves[claim.row_id]) for claim in claims]


async def record_start(conn: AsyncConnection, claim: Claim, now: datetime) -> None:
    """Record that Blob is called next, or raise LeaseLost if another request replaced the move."""
    await leases.write(conn, claim, begun_at=func.coalesce(tier_moves.c.begun_at, now))


async def end(conn: AsyncConnection, claim: Claim, outcome: TierMoveOutcome, now: datetime) -> None:
    """End the move with an outcome, or raise LeaseLost.

    The charge of a folder that is gone stays, unless its move had not begun.
    """
    charge = tier_moves.c.charge
    paid = _charge_if_begun(charge) if outcome is TierMoveOutcome.GONE else charge
    await leases.release(conn, claim, now, now, ended_at=now, outcome=outcome, charge=paid)


def _charge_if_begun(charge: ColumnElement[Decimal]) -> ColumnElement[Decimal]:
    return case((tier_moves.c.begun_at.is_(None), Decimal(0)), else_=charge)


def _query() -> Select[Any]:
    join_condition = tier_moves.c.checkpoint_id == checkpoints.c.id
    return select(*_COLUMNS, checkpoints.c.step).outerjoin(checkpoints, join_condition)


def _move(row: Row[Any]) -> TierMove:
    values = {field.name: getattr(row, field.name) for field in fields(TierMove)}
    outcome = TierMoveOutcome(row.outcome) if row.outcome else None
    typed = {
        "tier": AccessTier(row.tier),
        "priority": ArchivePriority(row.priority),
        "outcome": outcome,
    }
    return TierMove(**values | typed)
