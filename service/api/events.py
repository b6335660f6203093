"""/v1/fine_tuning/jobs/{id}/events and /checkpoints, newest first."""

import math
from typing import Any

from fastapi import APIRouter

from service.api.deps import CallerDep, Db
from service.api.pages import After, clamp, known, page
from service.db import checkpoints, events
from service.db.checkpoints import Checkpoint
from service.db.events import Event
from service.db.jobs import JobRow
from service.operations import jobs
from service.operations.bases import full_name

router = APIRouter(prefix="/fine_tuning/jobs", tags=["fine-tuning"])
_MOST = 100


@router.get("/{job_id}/events")
async def list_events(
    db: Db, caller: CallerDep, job_id: str, limit: int = 20, after: After = None
) -> dict[str, Any]:
    """What happened, in sentences."""
    await jobs.get(db, caller.project_id, job_id)
    limit = clamp(limit, _MOST)
    found = await events.newest(db, job_id, after=after, limit=limit + 1)
    return page(known(found, after), limit, _event)


@router.get("/{job_id}/checkpoints")
async def list_checkpoints(
    db: Db, caller: CallerDep, job_id: str, limit: int = 10, after: After = None
) -> dict[str, Any]:
    """Committed checkpoints."""
    job = await jobs.get(db, caller.project_id, job_id)
    limit = clamp(limit, _MOST)
    found = await checkpoints.newest(db, job_id, after=after, limit=limit + 1)
    return page(known(found, after), limit, lambda c: _checkpoint(job, c))


def _event(event: Event) -> dict[str, Any]:
    shown = {
        "id": event.id,
        "object": "fine_tuning.job.event",
        "created_at": int(event.at.timestamp()),
        "level": event.level,
        "message": event.message,
        "type": "message",
        "code": event.code,
        "attempt": event.attempt_id,
    }
    return shown if event.data is None else shown | {"data": event.data}


def _checkpoint(job: JobRow, checkpoint: Checkpoint) -> dict[str, Any]:
    measured = {
        "train_loss": checkpoint.loss,
        "train_mean_token_accuracy": checkpoint.accuracy,
        "valid_loss": checkpoint.valid_loss,
    }
    return {
        "id": checkpoint.id,
        "object": "fine_tuning.job.checkpoint",
        "created_at": int(checkpoint.committed_at.timestamp()),
        "fine_tuned_model_checkpoint": f"{full_name(job)}:ckpt-step-{checkpoint.step}",
        "fine_tuning_job_id": job.id,
        "step_number": checkpoint.step,
        "metrics": {"step": checkpoint.step}
        | {
            k: v for k, v in measured.items() if v is not None and math.isfinite(v)
        },  # JSON has no NaN, and OpenAI's members are numbers or left out
        "kind": checkpoint.kind,
        "kept_as": checkpoint.kept_as,
        "size_bytes": checkpoint.size,
        "world_size": checkpoint.world_size,
        "generation": checkpoint.generation,
    }
