"""/v1/models: base models and a project's own; /v1/fine_tuning/jobs/{id}/model: the files."""

import re
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header
from fastapi.responses import StreamingResponse

from service.api.deps import CallerDep, Parts, PartsDep
from service.api.job_views import fine_tuned_model, seconds
from service.db.jobs import JobRow
from service.db.keys import Caller
from service.domain import tiers as tier_rules
from service.domain.errors import ModelNotFound
from service.domain.tiers import Presence
from service.operations import jobs, models, tiers
from service.operations.models import Base
from service.storage.store import BlobArchived, BlobNotFound
from trainer.contract import MANIFEST, Manifest

router = APIRouter()
_OF_JOB = "/fine_tuning/jobs/{job_id}/model"
_FROM = re.compile(r"bytes=(\d{1,18})-")


@router.get("/models", tags=["models"])
async def list_models(parts: PartsDep, caller: CallerDep) -> dict[str, Any]:
    """Base models that a job may start from, and what the project's jobs have made."""
    return {"object": "list", "data": await _models(parts, caller)}


@router.get("/models/{model:path}", tags=["models"])
async def get_model(parts: PartsDep, caller: CallerDep, model: str) -> dict[str, Any]:
    """One of them, by its name: a project's own needs no store, a base model just its HEAD."""
    async with parts.engine.connect() as conn:
        job = await models.made_as(conn, caller.project_id, model)
    if job is not None and fine_tuned_model(job) == model:
        return _made(job)
    if (base := await models.base(parts.store, model)) is not None:
        return _base(base)
    raise ModelNotFound(f"No model {model!r}. See GET /v1/models for those that there are.")


@router.get(_OF_JOB, tags=["fine-tuning"])
async def list_model_files(parts: PartsDep, caller: CallerDep, job_id: str) -> dict[str, Any]:
    """The final model's files, as Hugging Face's from_pretrained wants them."""
    path, manifest = await _manifest(parts, caller, job_id)
    data = [{"name": f.name, "bytes": f.size, "crc64nvme": f.crc64nvme} for f in manifest.files]
    return {
        "object": "list",
        "data": data,
        "has_more": False,
        "path": path,
        "parameters_sha256": manifest.parameters_sha256,
    }


@router.get(_OF_JOB + "/{name:path}", tags=["fine-tuning"])
async def get_model_file(
    parts: PartsDep,
    caller: CallerDep,
    job_id: str,
    name: str,
    wanted: Annotated[str | None, Header(alias="range")] = None,
) -> StreamingResponse:
    """The bytes of one file of the final model; `Range: bytes=N-` goes on with a download."""
    path, manifest = await _manifest(parts, caller, job_id)
    _inside(path, f"{path}/{name}")
    file = next((f for f in manifest.files if f.name == name), None)
    if file is None:
        names = ", ".join(f.name for f in manifest.files)
        raise ModelNotFound(f"The model has no file {name!r}. It has: {names}.")
    await _must_be_online(parts, caller, job_id, f"{path}/{name}")
    begin = _begin(wanted, file.size)
    stream: AsyncIterator[bytes] = parts.store.stream(job_id, f"{path}/{name}", offset=begin)
    headers = {"content-length": str(file.size - begin), "accept-ranges": "bytes"}
    if begin:
        headers["content-range"] = f"bytes {begin}-{file.size - 1}/{file.size}"
    status, kind = (206 if begin else 200), "application/octet-stream"
    return StreamingResponse(stream, status_code=status, media_type=kind, headers=headers)


async def _models(parts: PartsDep, caller: Caller) -> list[dict[str, Any]]:
    async with parts.engine.connect() as conn:
        made = await models.made(conn, caller.project_id)
    return [*map(_made, made), *map(_base, await models.staged(parts.store))]


def _base(base: Base) -> dict[str, Any]:
    created = seconds(base.staged_at)
    return {"id": base.name, "object": "model", "created": created, "owned_by": "base"}


def _made(job: JobRow) -> dict[str, Any]:
    return {
        "id": fine_tuned_model(job),
        "object": "model",
        "created": seconds(job.finished_at),
        "owned_by": job.project_id,
        "base_model": job.model,
        "job": job.id,
    }


async def _manifest(parts: PartsDep, caller: Caller, job_id: str) -> tuple[str, Manifest]:
    async with parts.engine.connect() as conn:
        job = await jobs.get(conn, caller.project_id, job_id)
    if job.result is None:
        raise ModelNotFound(f"Job {job_id} is {job.state}: it has no model yet.")
    path = _inside("models/", str(job.result["path"]))
    try:
        data, _ = await parts.store.read(job_id, f"{path}/{MANIFEST}")
    except BlobNotFound:
        raise ModelNotFound(tiers.gone(job_id, f"Blob {path}/{MANIFEST}")) from None
    except BlobArchived:
        seen = await tiers.look(parts.engine, parts.outside, caller.project_id, job_id, None)
        tiers.must_be_online(seen)
        raise  # it came back this moment
    return path, Manifest.from_json(data)


async def _must_be_online(parts: Parts, caller: Caller, job_id: str, name: str) -> None:
    """ModelNotFound when the blob is gone; Archived, with the ways back, when it cannot be read."""
    listed = await parts.store.list_stored(job_id, name)
    blob = next((found for found in listed if found.name == name), None)
    if blob is None:
        raise ModelNotFound(tiers.gone(job_id, f"Blob {name}"))
    if tier_rules.presence([blob]) is not Presence.ONLINE:
        seen = await tiers.look(parts.engine, parts.outside, caller.project_id, job_id, None)
        tiers.must_be_online(seen)


def _begin(wanted: str | None, size: int) -> int:
    """The first byte that is asked for; any other range may be answered with the whole file."""
    found = _FROM.fullmatch(wanted or "")
    return int(found[1]) if found and int(found[1]) < size else 0


def _inside(prefix: str, path: str) -> str:
    """The path, unless it leads out of its folder: nodes wrote it, and nodes may be hostile."""
    if not path.startswith(prefix) or ".." in path.split("/"):
        raise ModelNotFound(f"HEAD names {path!r}, which is no place for a model.")
    return path
