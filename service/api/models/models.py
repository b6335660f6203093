"""/v1/models: base models and the project's own; /v1/fine_tuning/jobs/{id}/model: its files."""

import re
from typing import Annotated

from fastapi import APIRouter, Header
from fastapi.responses import StreamingResponse

from service.api.deps import Now, Parts, PartsDep, Reader, Writer
from service.api.http.responses import PART, as_download
from service.api.jobs.job_views import fine_tuned_model
from service.api.schemas.models import Model, ModelDeleted, ModelFile, ModelFiles, ModelList
from service.db.jobs.jobs import JobRow
from service.db.projects.keys import Caller
from service.domain.errors import ModelNotFound
from service.domain.models.lineage import is_deleted, is_made, source
from service.domain.storage import access_tiers as tier_rules
from service.domain.storage.access_tiers import Presence
from service.operations.jobs import jobs
from service.operations.models import checkpoint_models, model_deletion, models
from service.operations.models.checkpoint_models import CheckpointModel, UnusableCheckpoint
from service.operations.models.models import ListedBaseModel
from service.operations.storage import integrity, tiers
from service.operations.storage.manifests import ManifestUnusable
from service.storage.store import MAX_LISTED, BlobArchived, BlobNotFound
from trainer.contract import MANIFEST, Manifest

router = APIRouter()
_JOB_MODEL_PATH = "/fine_tuning/jobs/{job_id}/model"
_MAX_NAMES_SHOWN = 20  # names of files in an error
_RANGE_HEADER = re.compile(r"bytes=(\d{1,18})-")


@router.get("/models", operation_id="listModels", tags=["Models"])
async def list_models(parts: PartsDep, caller: Reader) -> ModelList:
    """List all models that a job can start from: base models, final models and checkpoints.

    Of a live job only milestones are listed: it may delete its other checkpoints.
    """
    return ModelList(data=await _list_models(parts, caller))


@router.get("/models/{model:path}", operation_id="retrieveModel", tags=["Models"])
async def get_model(parts: PartsDep, caller: Reader, model: str) -> Model:
    """Return one model by its name."""
    if is_made(model) and source(model).is_checkpoint:
        return await _find_checkpoint(parts, caller, model)
    async with parts.reading.connect() as conn:
        job = await models.find_maker(conn, caller.project_id, model)
    if job is not None and fine_tuned_model(job) == model and not is_deleted(job.result):
        return _fine_tuned(job)
    if (base := await models.find_base_model(parts.store, model)) is not None:
        return _base(base)
    raise ModelNotFound(f"No model {model!r:.80}. List them: GET /v1/models.")


@router.delete("/models/{model:path}", operation_id="deleteModel", tags=["Models"])
async def delete_model(parts: PartsDep, caller: Writer, now: Now, model: str) -> ModelDeleted:
    """Delete a job's final model, or a checkpoint of a job that is over; base models stay."""
    engine, store, project = parts.engine, parts.store, caller.project_id
    freed = await model_deletion.delete(engine, store, project, model, now)
    return ModelDeleted(id=model, bytes_freed=freed)


@router.get(_JOB_MODEL_PATH, operation_id="listFineTuningModelFiles", tags=["Fine-tuning"])
async def list_model_files(parts: PartsDep, caller: Reader, job_id: str) -> ModelFiles:
    """List the files of the final model, as Hugging Face's from_pretrained expects them."""
    path, manifest = await _manifest(parts, caller, job_id)
    files = [
        ModelFile(name=f.name, bytes=f.size, crc64nvme=f.crc64nvme, sha256=f.sha256)
        for f in manifest.files
    ]
    return ModelFiles(data=files, path=path, parameters_sha256=manifest.parameters_sha256)


@router.get(
    _JOB_MODEL_PATH + "/{name:path}",
    operation_id="downloadFineTuningModelFile",
    tags=["Fine-tuning"],
    responses=PART,
)
async def get_model_file(
    parts: PartsDep,
    caller: Reader,
    job_id: str,
    name: str,
    range_header: Annotated[str | None, Header(alias="range")] = None,
) -> StreamingResponse:
    """Download one file of the final model; `Range: bytes=N-` resumes a download.

    A file that differs from what the job committed is refused with 409 `content_changed`. If that
    shows at the end of the stream, the connection breaks off before the last bytes.
    """
    path, manifest = await _manifest(parts, caller, job_id)
    _require_inside(path, f"{path}/{name}")
    file = next((f for f in manifest.files if f.name == name), None)
    if file is None:
        names = ", ".join(f.name for f in manifest.files[:_MAX_NAMES_SHOWN])
        raise ModelNotFound(f"The model has no file {name!r:.80}. It has: {names}.")
    await _require_online(parts, caller, job_id, f"{path}/{name}")
    start = _range_start(range_header, file.size)
    stream = await integrity.open_file(parts.store, job_id, path, file, start)
    headers = {"content-length": str(file.size - start), "accept-ranges": "bytes"}
    headers |= as_download(name.rpartition("/")[2])
    if start:
        headers["content-range"] = f"bytes {start}-{file.size - 1}/{file.size}"
    status, kind = (206 if start else 200), "application/octet-stream"
    return StreamingResponse(stream, status_code=status, media_type=kind, headers=headers)


async def _list_models(parts: PartsDep, caller: Caller) -> list[Model]:
    async with parts.reading.connect() as conn:
        rows = await models.list_fine_tuned(conn, caller.project_id)
        checkpoints = await checkpoint_models.list_usable(conn, caller.project_id)
    return [
        *map(_fine_tuned, rows),
        *map(_checkpoint_model, checkpoints),
        *map(_base, await models.list_base_models(parts.store)),
    ]


async def _find_checkpoint(parts: Parts, caller: Caller, name: str) -> Model:
    async with parts.reading.connect() as conn:
        try:
            checkpoint = await checkpoint_models.find(conn, caller.project_id, name)
        except UnusableCheckpoint as error:
            raise ModelNotFound(str(error)) from None
    return _checkpoint_model(checkpoint)


def _checkpoint_model(checkpoint: CheckpointModel) -> Model:
    return Model(
        id=checkpoint.name,
        created=int(checkpoint.row.committed_at.timestamp()),
        owned_by=checkpoint.job.project_id,
        base_model=checkpoint.job.model,
        job=checkpoint.job.id,
        step=checkpoint.row.step,
    )


def _base(base: ListedBaseModel) -> Model:
    created = int(base.staged_at.timestamp())
    return Model(id=base.name, created=created, owned_by="base")


def _fine_tuned(job: JobRow) -> Model:
    name, finished = fine_tuned_model(job), job.finished_at
    assert name is not None, "it has succeeded"
    assert finished is not None, "so it is over"
    return Model(
        id=name,
        created=int(finished.timestamp()),
        owned_by=job.project_id,
        base_model=job.model,
        job=job.id,
    )


async def _manifest(parts: PartsDep, caller: Caller, job_id: str) -> tuple[str, Manifest]:
    async with parts.reading.connect() as conn:
        job = await jobs.get(conn, caller.project_id, job_id)
    if job.result is None:
        raise ModelNotFound(f"Job {job_id} is {job.state}: it has no model yet.")
    if is_deleted(job.result):
        raise ModelNotFound(f"The model of job {job_id} was deleted.")
    path = _require_inside("models/", str(job.result["path"]))
    try:
        return path, await integrity.read_manifest(parts.store, job_id, job.result)
    except ManifestUnusable as error:
        raise ModelNotFound(
            f"Blob {path}/{MANIFEST} of container {job_id} {error}. Restore it in the storage "
            "account (versions), or train again."
        ) from None
    except BlobNotFound:
        raise ModelNotFound(tiers.missing_message(job_id, f"Blob {path}/{MANIFEST}")) from None
    except BlobArchived:
        inspection = await tiers.inspect_folder(
            parts.engine, parts.storage, caller.project_id, job_id, None
        )
        tiers.require_online(inspection)
        raise  # rehydrated meanwhile


async def _require_online(parts: Parts, caller: Caller, job_id: str, name: str) -> None:
    """Raise ModelNotFound when the blob is gone, Archived when it cannot be read."""
    blobs = await parts.store.list_stored(job_id, name, most=MAX_LISTED)
    blob = next((item for item in blobs if item.name == name), None)
    if blob is None:
        raise ModelNotFound(tiers.missing_message(job_id, f"Blob {name}"))
    if tier_rules.folder_presence([blob]) is not Presence.ONLINE:
        inspection = await tiers.inspect_folder(
            parts.engine, parts.storage, caller.project_id, job_id, None
        )
        tiers.require_online(inspection)


def _range_start(range_header: str | None, size: int) -> int:
    """Return the first requested byte; other ranges are answered with the whole file."""
    match = _RANGE_HEADER.fullmatch(range_header or "")
    return int(match[1]) if match and int(match[1]) < size else 0


def _require_inside(prefix: str, path: str) -> str:
    """Return the path, or raise ModelNotFound if it leads out of its folder."""
    if not path.startswith(prefix) or ".." in path.split("/"):
        raise ModelNotFound(f"HEAD names {path!r}, which is not a folder of models.")
    return path
