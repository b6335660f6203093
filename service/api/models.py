"""/v1/fine_tuning/jobs/{id}/model: the files of the final model, from Blob."""

from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from service.api.deps import CallerDep, PartsDep
from service.domain.errors import ModelNotFound
from service.operations import jobs
from trainer.contract import MANIFEST, Manifest

router = APIRouter(prefix="/fine_tuning/jobs", tags=["fine-tuning"])


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
    _inside(path, f"{path}/{name}")
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
    path = _inside("models/", str(job.result["path"]))
    data, _ = await parts.store.read(job_id, f"{path}/{MANIFEST}")
    return path, Manifest.from_json(data)


def _inside(prefix: str, path: str) -> str:
    """The path, unless it leads out of its folder: nodes wrote it, and nodes may be hostile."""
    if not path.startswith(prefix) or ".." in path.split("/"):
        raise ModelNotFound(f"HEAD names {path!r}, which is no place for a model.")
    return path
