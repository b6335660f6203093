"""/v1/fine_tuning/jobs/{id}/logs: what a rank printed, from Blob."""

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, Response, StreamingResponse

from service.api.deps import CallerDep, PartsDep
from service.db import attempts
from service.db.attempts import AttemptRow
from service.domain.errors import AttemptNotFound, InvalidRequest
from service.operations import jobs
from service.storage.store import BlobNotFound
from trainer.contract import log_path

router = APIRouter(prefix="/fine_tuning/jobs", tags=["fine-tuning"])


@router.get("/{job_id}/logs", response_class=PlainTextResponse)
async def get_logs(
    parts: PartsDep, caller: CallerDep, job_id: str, attempt: str | None = None, rank: int = 0
) -> Response:
    """Plain text of one rank of one attempt (the newest unless told)."""
    async with parts.engine.connect() as conn:
        await jobs.get(conn, caller.project_id, job_id)
        tried = await attempts.of_job(conn, job_id)
    chosen = _choose(tried, attempt)
    path = log_path(chosen.id, rank)
    try:
        await parts.store.properties(job_id, path)
    except BlobNotFound:
        return PlainTextResponse("")  # nothing printed yet
    return StreamingResponse(parts.store.stream(job_id, path), media_type="text/plain")


def _choose(tried: list[AttemptRow], wanted: str | None) -> AttemptRow:
    if not tried:
        raise AttemptNotFound("The job has not had any machines yet: there is nothing to read.")
    if wanted is None:
        return tried[-1]
    for attempt in tried:
        if wanted in (attempt.id, str(attempt.number)):
            return attempt
    raise InvalidRequest(f"attempt={wanted!r} is none of this job's attempts.", param="attempt")
