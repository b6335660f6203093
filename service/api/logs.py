"""/v1/fine_tuning/jobs/{id}/logs: what a rank printed, from Blob; and the final model's files."""

from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, Response, StreamingResponse

from service.api.deps import CallerDep, PartsDep
from service.db import attempts
from service.db.attempts import AttemptRow
from service.domain.errors import AttemptNotFound, InvalidRequest, ModelNotFound
from service.operations import jobs
from service.storage.store import BlobNotFound
from trainer.contract import MANIFEST, Manifest, log_path

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


@router.get("/{job_id}/model")
async def list_model(parts: PartsDep, caller: CallerDep, job_id: str) -> dict[str, Any]:
    """The final model's files, as Hugging Face's from_pretrained wants them."""
    path, manifest = await _model(parts, caller, job_id)
    data = [{"name": f.name, "bytes": f.size, "crc64nvme": f.crc64nvme} for f in manifest.files]
    return {
        "object": "list",
        "data": data,
        "has_more": False,
        "path": path,
        "parameters_sha256": manifest.parameters_sha256,
    }


@router.get("/{job_id}/model/{name:path}")
async def get_model_file(
    parts: PartsDep, caller: CallerDep, job_id: str, name: str
) -> StreamingResponse:
    """The bytes of one file of the final model."""
    path, manifest = await _model(parts, caller, job_id)
    file = next((f for f in manifest.files if f.name == name), None)
    if file is None:
        names = ", ".join(f.name for f in manifest.files)
        raise ModelNotFound(f"The model has no file {name!r}. It has: {names}.")
    stream: AsyncIterator[bytes] = parts.store.stream(job_id, f"{path}/{name}")
    headers = {"content-length": str(file.size)}
    return StreamingResponse(stream, media_type="application/octet-stream", headers=headers)


async def _model(parts: PartsDep, caller: CallerDep, job_id: str) -> tuple[str, Manifest]:
    async with parts.engine.connect() as conn:
        job = await jobs.get(conn, caller.project_id, job_id)
    if job.result is None:
        raise ModelNotFound(f"Job {job_id} is {job.state}: it has no model yet.")
    path = str(job.result["path"])
    data, _ = await parts.store.read(job_id, f"{path}/{MANIFEST}")
    return path, Manifest.from_json(data)


def _choose(tried: list[AttemptRow], wanted: str | None) -> AttemptRow:
    if not tried:
        raise AttemptNotFound("The job has not had any machines yet: there is nothing to read.")
    if wanted is None:
        return tried[-1]
    for attempt in tried:
        if wanted in (attempt.id, str(attempt.number)):
            return attempt
    raise InvalidRequest(f"attempt={wanted!r} is none of this job's attempts.", param="attempt")
