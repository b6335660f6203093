"""/v1/fine_tuning/jobs/{id}/attempts: each use of machines, with its steps and cost."""

from datetime import datetime
from typing import Any

from fastapi import APIRouter

from service.api.deps import Db, Now, Reader
from service.api.jobs.job_views import money, seconds
from service.api.schemas.attempts import Attempt, AttemptList
from service.db.attempts.generations import OpenedGeneration
from service.domain.errors import AttemptNotFound
from service.domain.money import cost
from service.domain.reporting import status_message
from service.domain.reporting.timeline import TimelineSpan
from service.operations.attempts import attempt_records
from service.operations.attempts.attempt_records import AttemptRecord, start_step
from service.operations.jobs import jobs

router = APIRouter(prefix="/fine_tuning/jobs", tags=["Fine-tuning"])


@router.get("/{job_id}/attempts", operation_id="listFineTuningAttempts")
async def list_attempts(db: Db, caller: Reader, now: Now, job_id: str) -> AttemptList:
    """List all attempts of the job, oldest first."""
    await jobs.get(db, caller.project_id, job_id)
    records = await attempt_records.list_records(db, job_id)
    return AttemptList(data=[_attempt(r, now) for r in records])


@router.get("/{job_id}/attempts/{attempt_id}", operation_id="retrieveFineTuningAttempt")
async def get_attempt(db: Db, caller: Reader, now: Now, job_id: str, attempt_id: str) -> Attempt:
    """Return one attempt, by its id or its number."""
    await jobs.get(db, caller.project_id, job_id)
    for record in await attempt_records.list_records(db, job_id):
        if attempt_id in (record.row.id, str(record.row.number)):
            return _attempt(record, now)
    raise AttemptNotFound(
        f"Job {job_id} has no attempt {attempt_id!r:.80}. List them: .../attempts."
    )


def _attempt(record: AttemptRecord, now: datetime) -> Attempt:
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
        "reason": status_message.why_ended(row.outcome, row.reason),
        "evicted": {"noticed": row.evicted_noticed, "unnoticed": row.evicted_unnoticed},
        "created_at": seconds(row.created_at),
        "ended_at": seconds(row.ended_at),
        **_steps(record),
        "cost": money(cost.machine_cost(record.ledger, now)),
        "machine_hours": money(cost.machine_hours(record.ledger, now)),
        "generations": [_generation(o) for o in record.generations],
        "timeline": [_entry(e, now) for e in record.timeline],
    }
    return Attempt(**members)


def _steps(record: AttemptRecord) -> dict[str, Any]:
    """Return the first and last step, and how many steps were repeated later."""
    if not record.generations:
        return {"from_step": None, "last_step": None, "steps": 0, "lost_steps": 0}
    start_steps = [start_step(o) for o in record.generations]
    last = max(
        [
            *start_steps,
            *(t.step for t in record.nodes),
            *(a.last_step for a in record.repeated_steps),
        ]
    )
    return {
        "from_step": start_steps[0],
        "last_step": last,
        "steps": last - start_steps[0],
        "lost_steps": sum(a.lost_steps for a in record.repeated_steps),
    }


def _generation(opened: OpenedGeneration) -> dict[str, Any]:
    """Return one set of nodes; the sets of an elastic job may differ in size."""
    return {
        "number": opened.generation.number,
        "nodes": len(opened.generation.members),
        "from_step": start_step(opened),
        "opened_at": seconds(opened.opened_at),
        "halted_at": seconds(opened.halted_at),
        "halted_because": opened.halt_reason or None,
        "rung": opened.generation.rung.to_plain() if opened.generation.rung else None,
    }


def _entry(entry: TimelineSpan, now: datetime) -> dict[str, Any]:
    """Return a phase with times to a millisecond: parts of a boot are shorter than a second."""
    ended = entry.ended_at
    return {
        "name": entry.name,
        "title": entry.title,
        "generation": entry.generation or None,
        "started_at": round(entry.started_at.timestamp(), 3),
        "ended_at": round(ended.timestamp(), 3) if ended else None,
        "seconds": round(((ended or now) - entry.started_at).total_seconds(), 3),
    }
