"""/v1/fine_tuning/jobs/{id}/attempts: every hold on machines, what it did and what it cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from fastapi import APIRouter
from sqlalchemy.ext.asyncio import AsyncConnection

from service.api.deps import Db, Now, Reader
from service.api.job_views import money, seconds
from service.api.schemas.attempts import Attempt, AttemptList
from service.db import attempts, events, generations, ledger, nodes
from service.db.attempts import AttemptRow
from service.db.generations import Opened
from service.db.nodes import Told
from service.domain import cost, story
from service.domain.cost import LedgerRow
from service.domain.errors import AttemptNotFound
from service.domain.states import AttemptState
from service.domain.timeline import Entry, World, timeline
from service.operations import jobs

router = APIRouter(prefix="/fine_tuning/jobs", tags=["Fine-tuning"])
Moves = dict[AttemptState, datetime]


@router.get("/{job_id}/attempts", operation_id="listFineTuningAttempts")
async def list_attempts(db: Db, caller: Reader, now: Now, job_id: str) -> AttemptList:
    """Oldest first. A job has few: all of them are in the answer."""
    await jobs.get(db, caller.project_id, job_id)
    records = await _records(db, job_id)
    return AttemptList(data=[_shown(r, now) for r in records])


@router.get("/{job_id}/attempts/{attempt_id}", operation_id="retrieveFineTuningAttempt")
async def get_attempt(db: Db, caller: Reader, now: Now, job_id: str, attempt_id: str) -> Attempt:
    """One of them, by its id or its number."""
    await jobs.get(db, caller.project_id, job_id)
    for record in await _records(db, job_id):
        if attempt_id in (record.row.id, str(record.row.number)):
            return _shown(record, now)
    raise AttemptNotFound(
        f"Job {job_id} has no attempt {attempt_id!r:.80}. List them: .../attempts."
    )


@dataclass(frozen=True, kw_only=True)
class _Record:
    """An attempt with all that belongs to it."""

    row: AttemptRow
    generations: list[Opened]
    nodes: list[Told]
    moves: Moves
    ledger: list[LedgerRow]
    again: list["_Again"]


async def _records(conn: AsyncConnection, job_id: str) -> list[_Record]:
    opened = await generations.of_job(conn, job_id)
    told = await nodes.told(conn, job_id)
    moves = await events.moves(conn, job_id)
    meters = await ledger.of_job(conn, job_id)
    again = _again(opened)
    return [
        _Record(
            row=row,
            generations=[o for o in opened if o.generation.attempt_id == row.id],
            nodes=[t for t in told if t.attempt_id == row.id],
            moves={AttemptState.PENDING: row.created_at} | moves.get(row.id, {}),
            ledger=[m for m in meters if m.attempt_id == row.id],
            again=[a for a in again if a.attempt_id == row.id],
        )
        for row in await attempts.of_job(conn, job_id)
    ]


@dataclass(frozen=True, kw_only=True)
class _Again:
    """What the following generation, of whichever attempt, did again of one of this attempt."""

    attempt_id: str
    lost: int
    reached: int


def _again(opened: Sequence[Opened]) -> list[_Again]:
    return [
        _Again(
            attempt_id=before.generation.attempt_id,
            lost=following.lost_steps,
            reached=_start(following) + following.lost_steps,
        )
        for before, following in pairwise(opened)
    ]


def _shown(record: _Record, now: datetime) -> Attempt:
    row = record.row
    members = {
        "id": row.id,
        "number": row.number,
        "region": row.offering.region,
        "sku": row.offering.vm_size,
        "capacity": str(row.offering.capacity_type),
        "engine": str(row.offering.engine),
        "nodes": row.instance_count,
        "price_per_hour": str(row.price.hourly),
        "state": str(row.state),
        "outcome": str(row.outcome) if row.outcome else None,
        "reason": story.why_ended(row.outcome, row.reason),
        "evicted": {"noticed": row.evicted_noticed, "unnoticed": row.evicted_unnoticed},
        "created_at": seconds(row.created_at),
        "ended_at": seconds(row.ended_at),
        **_steps(record),
        "cost": money(cost.spent(record.ledger, now)),
        "machine_hours": money(cost.machine_hours(record.ledger, now)),
        "generations": [_generation(o) for o in record.generations],
        "timeline": [_entry(e, now) for e in _timeline(record)],
    }
    return Attempt(**members)


def _steps(record: _Record) -> dict[str, Any]:
    """Where it began and ended, and how many of its steps were done again later."""
    if not record.generations:
        return {"from_step": None, "last_step": None, "steps": 0, "lost_steps": 0}
    loaded = [_start(o) for o in record.generations]
    last = max([*loaded, *(t.step for t in record.nodes), *(a.reached for a in record.again)])
    return {
        "from_step": loaded[0],
        "last_step": last,
        "steps": last - loaded[0],
        "lost_steps": sum(a.lost for a in record.again),
    }


def _generation(opened: Opened) -> dict[str, Any]:
    """One membership of nodes; an elastic job's attempt may have several that differ."""
    return {
        "number": opened.generation.number,
        "nodes": len(opened.generation.members),
        "from_step": _start(opened),
        "opened_at": seconds(opened.opened_at),
        "halted_at": seconds(opened.halted_at),
        "halted_because": opened.halt_reason or None,
        "rung": opened.generation.rung.to_plain() if opened.generation.rung else None,
    }


def _start(opened: Opened) -> int:
    checkpoint = opened.generation.checkpoint
    return checkpoint.step if checkpoint else 0


def _timeline(record: _Record) -> list[Entry]:
    worlds = [
        World(
            opened_at=o.opened_at,
            halted_at=o.halted_at,
            halt_kind=o.halt_kind,
            number=o.generation.number,
            nodes=len(o.generation.members),
        )
        for o in record.generations
    ]
    return timeline(record.moves, worlds, [t.time for t in record.nodes])


def _entry(entry: Entry, now: datetime) -> dict[str, Any]:
    """Times to a millisecond: pieces of a boot are shorter than a second."""
    ended = entry.ended_at
    return {
        "name": entry.name,
        "title": entry.title,
        "generation": entry.generation or None,
        "started_at": round(entry.started_at.timestamp(), 3),
        "ended_at": round(ended.timestamp(), 3) if ended else None,
        "seconds": round(((ended or now) - entry.started_at).total_seconds(), 3),
    }
