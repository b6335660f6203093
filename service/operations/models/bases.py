"""Models that a job may be based on: staged base models, and models made by jobs of the project.

A job's model stays in that job's container and is not copied. It must be readable for as long as a
job that reads it is live (`model_references.py`).
"""

import json
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from contract.methods import Method
from service.db.jobs import jobs
from service.db.jobs.jobs import JobRow
from service.domain.errors import ContentChanged, InvalidRequest, UnsupportedModel
from service.domain.models import lineage
from service.domain.models.base_models import SupportedModel
from service.domain.models.lineage import OF_BASE
from service.domain.states import JOB_TERMINAL, JobState
from service.operations.models import checkpoint_bases, checkpoint_models, models
from service.operations.models.checkpoint_bases import CONFIG
from service.operations.models.checkpoint_models import CheckpointModel, UnusableCheckpoint
from service.operations.models.models import StagedModel, full_name
from service.operations.storage import integrity
from service.operations.storage.tiers import (
    StorageServices,
    inspect_folder,
    missing_message,
    require_online,
)
from service.storage.store import BlobNotFound, BlobStore
from trainer.contract import MANIFEST, InputFile, Manifest, PinnedModel

# Suffixes of the files that rekindle/stage.py copies, and of the model card.
_SUFFIXES = {
    ".jinja",
    ".json",
    ".md",
    ".model",
    ".safetensors",
    ".txt",
}


@dataclass(frozen=True, kw_only=True)
class Basis:
    """A model that a job may be based on."""

    staged: StagedModel
    method: Method | None  # of the job that has made it; None for a base model

    @property
    def name(self) -> str:
        """Return the model's full name, however the request named it."""
        return self.staged.model.name

    @property
    def labels(self) -> list[str]:
        """Return the labels of a classifier, in the order of their numbers."""
        label_by_number: dict[str, str] = self.staged.config.get("id2label") or {}
        return [label_by_number[number] for number in sorted(label_by_number, key=int)]


async def find_basis(
    engine: AsyncEngine, store: BlobStore, project_id: str, name: str, param: str = OF_BASE
) -> Basis:
    """Return the model of this name, or raise InvalidRequest with ``param``.

    Raises BlobArchived where a job's model is in the archive tier.
    """
    if not lineage.is_made(name):
        return Basis(staged=await models.find_staged_model(store, name), method=None)
    if lineage.source(name).is_checkpoint:
        async with engine.connect() as conn:
            checkpoint = await _find_checkpoint(conn, project_id, name, param)
        staged = await checkpoint_bases.read(store, checkpoint, param)
        return Basis(staged=staged, method=checkpoint.job.parsed_plan.recipe.method)
    async with engine.connect() as conn:
        job = await _find_maker(conn, project_id, name, param)
    manifest = await _manifest(store, job, param)
    model = _base_model_of(job, manifest)
    staged = StagedModel(model=model, config=await _config(store, job, model, param))
    return Basis(staged=staged, method=job.parsed_plan.recipe.method)


def unstaged_basis(entry: SupportedModel) -> Basis:
    """Return a base model that only the catalogue knows: enough to plan with."""
    model = PinnedModel(name=entry.name, revision="", files=())
    return Basis(staged=StagedModel(model=model, config=entry.config), method=None)


async def find_readable_basis(
    engine: AsyncEngine, services: StorageServices, project_id: str, name: str, param: str = OF_BASE
) -> Basis:
    """Return the model of this name if it can be read now, as `find_basis` does.

    Raises Archived, with the ways to rehydrate it, where a part of it is not online.
    """
    if lineage.is_made(name):
        for job_id, checkpoint_id in await _list_read_folders(engine, project_id, name, param):
            require_online(
                await inspect_folder(engine, services, project_id, job_id, checkpoint_id)
            )
    return await find_basis(engine, services.store, project_id, name, param)


async def _list_read_folders(
    engine: AsyncEngine, project_id: str, name: str, param: str
) -> list[tuple[str, str | None]]:
    """Return the jobs whose folders are read, with the checkpoint's id (None: the final model)."""
    async with engine.connect() as conn:
        if not lineage.source(name).is_checkpoint:
            return [((await _find_maker(conn, project_id, name, param)).id, None)]
        checkpoint = await _find_checkpoint(conn, project_id, name, param)
    base = lineage.base_of(checkpoint.job.model)
    return [(checkpoint.job.id, checkpoint.row.id), *([(base.job_id, None)] if base else [])]


async def _find_checkpoint(
    conn: AsyncConnection, project_id: str, name: str, param: str
) -> CheckpointModel:
    """Return the checkpoint, or raise InvalidRequest; its job's own base model must exist too."""
    try:
        checkpoint = await checkpoint_models.find(conn, project_id, name)
    except UnusableCheckpoint as error:
        raise UnsupportedModel(str(error), param=param) from None
    if lineage.base_of(checkpoint.job.model) is not None:
        await _find_maker(conn, project_id, checkpoint.job.model, param)
    return checkpoint


async def _find_maker(conn: AsyncConnection, project_id: str, name: str, param: str) -> JobRow:
    job = await jobs.find(conn, lineage.training_job_id(name), project_id)
    if job is None or name not in (job.id, full_name(job)):
        raise UnsupportedModel(
            f"No model {name!r}. List models: GET /v1/models. The model of a job is its "
            "fine_tuned_model, or the job's id.",
            param=param,
        )
    if lineage.is_deleted(job.result):
        raise UnsupportedModel(
            f"The model of job {job.id} was deleted. Take another one.", param=param
        )
    if job.state is JobState.SUCCEEDED:
        return job
    if job.state in JOB_TERMINAL:
        raise UnsupportedModel(
            f"Job {job.id} has {job.state} and made no model. Take another one.", param=param
        )
    raise UnsupportedModel(
        f"Job {job.id} is {job.state}: it has no model yet. Wait until it has succeeded.",
        param=param,
    )


async def _manifest(store: BlobStore, job: JobRow, param: str) -> Manifest:
    """Return the manifest that HEAD named, or raise InvalidRequest where its hash has changed."""
    result: dict[str, Any] = job.result or {}
    path = f"{result['path']}/{MANIFEST}"
    if not path.startswith("models/") or ".." in path.split("/"):  # nodes may be hostile
        raise UnsupportedModel(
            f"HEAD of {job.id} names {path!r}, which is not a folder of models.", param=param
        )
    try:
        return await integrity.read_manifest(store, job.id, result)
    except ContentChanged as error:
        raise UnsupportedModel(error.message, param=param) from None
    except BlobNotFound:
        raise UnsupportedModel(missing_message(job.id, f"Blob {path}"), param=param) from None
    except ValueError as error:
        raise _invalid_blob_error(job, path, str(error), param) from None


async def _config(store: BlobStore, job: JobRow, model: PinnedModel, param: str) -> dict[str, Any]:
    """Return the model's config.json, or raise InvalidRequest."""
    assert job.result is not None
    path = f"{job.result['path']}/{CONFIG}"
    unnamed = InputFile(path=f"{job.id}/{path}", size=0, sha256="")
    file = next((file for file in model.files if file.name == CONFIG), unnamed)
    try:
        config = json.loads(await integrity.read_input(store, file))
    except BlobNotFound:
        raise UnsupportedModel(missing_message(job.id, f"Blob {path}"), param=param) from None
    except ValueError as error:
        raise _invalid_blob_error(job, path, str(error), param) from None
    if not isinstance(config, dict):
        raise _invalid_blob_error(job, path, "it holds no object", param)
    return config


def _base_model_of(job: JobRow, manifest: Manifest) -> PinnedModel:
    """Return the job's model: the files in its top folder, without those of adapters."""
    assert job.result is not None
    path = str(job.result["path"])
    files = tuple(
        InputFile(
            path=f"{job.id}/{path}/{file.name}",
            size=file.size,
            sha256=file.sha256,
            crc64nvme=file.crc64nvme,
        )
        for file in manifest.files
        if PurePosixPath(file.name).name == file.name
        and PurePosixPath(file.name).suffix in _SUFFIXES
    )
    return PinnedModel(name=full_name(job), revision=job.result["manifest_sha256"], files=files)


def _invalid_blob_error(job: JobRow, path: str, reason: str, param: str) -> InvalidRequest:
    return UnsupportedModel(
        f"Blob {path} of container {job.id} is invalid ({reason}). Train the model again.",
        param=param,
    )
