"""/v1/fine_tuning/jobs/{id}/attempts: every hold on machines, and what it cost."""

from decimal import Decimal
from itertools import zip_longest
from typing import Any

from fastapi import APIRouter

from service.api.deps import CallerDep, Db, Now
from service.db import attempts, generations, ledger, nodes
from service.db.attempts import AttemptRow
from service.domain import cost
from service.operations import jobs

router = APIRouter(prefix="/fine_tuning/jobs", tags=["fine-tuning"])


@router.get("/{job_id}/attempts")
async def list_attempts(db: Db, caller: CallerDep, now: Now, job_id: str) -> dict[str, Any]:
    """Oldest first. A job has few: all of them are in the answer."""
    await jobs.get(db, caller.project_id, job_id)
    rows = await ledger.of_job(db, job_id)
    tried = await attempts.of_job(db, job_id)
    loaded = await generations.first_steps(db, job_id)
    reached = await nodes.last_steps(db, [a.id for a in tried])
    data = []
    for attempt, following in zip_longest(tried, tried[1:]):
        own = [r for r in rows if r.attempt_id == attempt.id]
        data.append(
            _shown(attempt)
            | _steps(attempt, following, loaded, reached)
            | {
                "cost": str(cost.spent(own, now).quantize(Decimal("0.0001"))),
                "machine_hours": str(cost.machine_hours(own, now).quantize(Decimal("0.0001"))),
            }
        )
    return {"object": "list", "data": data, "has_more": False}


def _steps(
    attempt: AttemptRow,
    following: AttemptRow | None,
    loaded: dict[str, int],
    reached: dict[str, int],
) -> dict[str, Any]:
    """Where it began and ended, and how many of its steps the next one had to do again."""
    last = max(reached.get(attempt.id, 0), loaded.get(attempt.id, 0))
    again = loaded.get(following.id) if following else None
    return {
        "from_step": loaded.get(attempt.id),
        "last_step": last if attempt.id in loaded else None,
        "lost_steps": max(last - again, 0) if again is not None and attempt.id in loaded else 0,
    }


def _shown(attempt: AttemptRow) -> dict[str, Any]:
    return {
        "id": attempt.id,
        "object": "fine_tuning.job.attempt",
        "number": attempt.number,
        "region": attempt.offering.region,
        "sku": attempt.offering.vm_size,
        "capacity": str(attempt.offering.capacity_type),
        "nodes": attempt.instance_count,
        "price_per_hour": str(attempt.price.hourly),
        "state": str(attempt.state),
        "outcome": str(attempt.outcome) if attempt.outcome else None,
        "reason": attempt.reason,
        "created_at": int(attempt.created_at.timestamp()),
        "ended_at": int(attempt.ended_at.timestamp()) if attempt.ended_at else None,
    }
