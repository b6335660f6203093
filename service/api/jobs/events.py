"""/v1/fine_tuning/jobs/{id}/events and /checkpoints, newest first."""

import math
from functools import partial

from fastapi import APIRouter, Response

from service.api.deps import Db, Parts, PartsDep, Reader
from service.api.http import streams
from service.api.http.pages import After, clamp_limit, page, require_known_cursor
from service.api.schemas.events import (
    Checkpoint,
    CheckpointList,
    CheckpointMetrics,
    Event,
    EventList,
)
from service.db.jobs import events
from service.db.jobs.jobs import JobRow
from service.db.storage import checkpoints
from service.domain.models import lineage
from service.domain.states import JOB_TERMINAL
from service.operations.jobs import jobs
from service.operations.models.models import full_name

router = APIRouter(prefix="/fine_tuning/jobs", tags=["Fine-tuning"])
_MAX_LIMIT = 100


@router.get("/{job_id}/events", operation_id="listFineTuningEvents")
async def list_events(
    db: Db, caller: Reader, job_id: str, limit: int = 20, after: After = None
) -> EventList:
    """List the job's events, newest first."""
    await jobs.get(db, caller.project_id, job_id)
    limit = clamp_limit(limit, _MAX_LIMIT)
    items = await events.newest(db, job_id, after=after, limit=limit + 1)
    return page(EventList, require_known_cursor(items, after), limit, _event)


@router.get(
    "/{job_id}/events/stream",
    operation_id="streamFineTuningEvents",
    response_class=Response,
    responses=streams.STREAM,
)
async def stream_events(
    parts: PartsDep, caller: Reader, job_id: str, last_event_id: streams.LastEventId = None
) -> Response:
    """Stream the job's events, oldest first, and new ones until the job is over."""
    read = partial(_read_next, parts, caller.project_id, job_id)
    await read(last_event_id)  # refuses what is not known
    stream = streams.stream_events(parts, caller.project_id, job_id, read, last_event_id)
    return streams.stream_response(parts, caller, stream)


async def _read_next(
    parts: Parts, project_id: str, job_id: str, after: str | None
) -> tuple[list[Event], int, bool]:
    """Return the next events, the job's version before they were read, and if it was over."""
    async with parts.reading.connect() as conn:
        job = await jobs.get(conn, project_id, job_id)
        rows = await events.following(conn, job_id, after=after, limit=streams.PAGE_SIZE)
    items = [_event(event) for event in require_known_cursor(rows, after)]
    return items, job.version, job.state in JOB_TERMINAL


@router.get("/{job_id}/checkpoints", operation_id="listFineTuningJobCheckpoints")
async def list_checkpoints(
    db: Db, caller: Reader, job_id: str, limit: int = 10, after: After = None
) -> CheckpointList:
    """List the job's committed checkpoints, newest first."""
    job = await jobs.get(db, caller.project_id, job_id)
    limit = clamp_limit(limit, _MAX_LIMIT)
    items = await checkpoints.newest(db, job_id, after=after, limit=limit + 1)
    return page(
        CheckpointList, require_known_cursor(items, after), limit, lambda c: _checkpoint(job, c)
    )


def _event(event: events.Event) -> Event:
    return Event(
        id=event.id,
        created_at=int(event.at.timestamp()),
        level=event.level,  # type: ignore[arg-type]  # a CHECK of the table
        message=event.message,
        code=event.code,
        attempt=event.attempt_id,
        data=event.data,
    )


def _checkpoint(job: JobRow, checkpoint: checkpoints.CheckpointRow) -> Checkpoint:
    metrics = {
        "train_loss": checkpoint.loss,
        "train_mean_token_accuracy": checkpoint.accuracy,
        "valid_loss": checkpoint.valid_loss,
    }
    finite_metrics = {k: v for k, v in metrics.items() if v is not None and math.isfinite(v)}
    return Checkpoint(
        id=checkpoint.id,
        created_at=int(checkpoint.committed_at.timestamp()),
        fine_tuned_model_checkpoint=lineage.checkpoint_name(full_name(job), checkpoint.step),
        fine_tuning_job_id=job.id,
        step_number=checkpoint.step,
        metrics=CheckpointMetrics(step=checkpoint.step, **finite_metrics),
        kind=checkpoint.kind,
        kept_as=checkpoint.kept_as,
        size_bytes=checkpoint.size,
        world_size=checkpoint.world_size,
        generation=checkpoint.generation,
    )
