"""Base models that nodes make from a checkpoint: the files to read, and facts for the planner.

HEAD names the manifest by its hash, the manifest the files by their checksums and the run spec by
its hash. The run spec names the base model that the checkpoint's job started from.
"""

import asyncio
import hashlib
import json
from typing import Any

from service.domain.errors import UnsupportedModel
from service.operations.attempts import heads
from service.operations.models.checkpoint_models import CheckpointModel
from service.operations.models.models import StagedModel
from service.operations.storage import integrity, manifests
from service.operations.storage.tiers import missing_message
from service.storage.store import BlobNotFound, BlobStore, BlobTooLarge
from trainer.contract import (
    BASE_FOLDER,
    CONVERTED_BASE,
    MANIFEST,
    RUN_SPEC,
    ConvertedBase,
    InputFile,
    PinnedModel,
    RunSpec,
    StartingCheckpoint,
)

CONFIG = "config.json"


async def read(store: BlobStore, checkpoint: CheckpointModel, param: str) -> StagedModel:
    """Return the base model as a run spec names it, or raise InvalidRequest where it is damaged.

    Raises BlobArchived where it cannot be read now, and StorageError.
    """
    try:
        return await _read(store, checkpoint)
    except ValueError as error:
        raise UnsupportedModel(
            f"The checkpoint {checkpoint.name} cannot be used: {error}. Take another one, or train "
            "again.",
            param=param,
        ) from None


async def _read(store: BlobStore, checkpoint: CheckpointModel) -> StagedModel:
    """Do what `read` does, but raise ValueError."""
    job, path = checkpoint.job, checkpoint.row.path
    manifest_data = await _manifest(store, checkpoint)
    manifest = await manifests.parse(manifest_data)
    if manifest.run_spec_sha256 != job.run_spec_sha256:
        raise ValueError(f"its {MANIFEST} names another run spec than the job's")
    spec_data = await _blob(store, f"{job.id}/{RUN_SPEC}")
    _require_sha256(spec_data, job.run_spec_sha256, RUN_SPEC)
    spec = RunSpec.from_json(spec_data)
    base = await _base_files(store, job.id, spec)
    if any("/" in file.name or file.name == MANIFEST for file in manifest.files):  # hostile?
        raise ValueError(f"its {MANIFEST} names a file outside its folder")
    folder = f"{job.id}/{path}"
    files = [
        InputFile(path=f"{folder}/{f.name}", size=f.size, sha256=f.sha256, crc64nvme=f.crc64nvme)
        for f in manifest.files
    ]
    starting = StartingCheckpoint(
        files=(_input_file(f"{folder}/{MANIFEST}", manifest_data), *files),
        run_spec=_input_file(f"{job.id}/{RUN_SPEC}", spec_data),
    )
    revision = hashlib.sha256(manifest_data).hexdigest()
    model = PinnedModel(name=checkpoint.name, revision=revision, files=base, checkpoint=starting)
    return StagedModel(model=model, config=await _config(store, base, spec))


async def _manifest(store: BlobStore, checkpoint: CheckpointModel) -> bytes:
    """Return the checkpoint's manifest, or raise ValueError if HEAD does not name it any more."""
    job_id, row = checkpoint.job.id, checkpoint.row
    head, _ = await heads.read(store, job_id)
    entry = next((c for c in head.checkpoints if c.path == row.path), None)
    if entry is None:
        raise ValueError(f"HEAD of container {job_id} does not name it any more")
    try:
        data = await manifests.load(store, job_id, row.path)
    except BlobNotFound:
        raise ValueError(
            missing_message(job_id, f"blob {row.path}/{MANIFEST}").removesuffix(".")
        ) from None
    _require_sha256(data, row.manifest_sha256, f"{row.path}/{MANIFEST}")
    return data


async def _base_files(store: BlobStore, job_id: str, spec: RunSpec) -> tuple[InputFile, ...]:
    """Return the files of the base model that the checkpoint's job started from.

    A base model that nodes converted lies in that job's container.
    """
    if spec.base_model.checkpoint is None:
        return spec.base_model.files
    data = await _blob(store, f"{job_id}/{CONVERTED_BASE}")
    converted = await asyncio.to_thread(ConvertedBase.from_json, data)
    folders = {file.path.rpartition("/")[0] for file in converted.files}
    are_inside = all(f.startswith(f"{job_id}/{BASE_FOLDER}/") and ".." not in f for f in folders)
    if len(folders) != 1 or not are_inside:  # nodes wrote it, and nodes may be hostile
        raise ValueError(f"{CONVERTED_BASE} of container {job_id} names files outside its folder")
    return converted.files


async def _config(store: BlobStore, base: tuple[InputFile, ...], spec: RunSpec) -> dict[str, Any]:
    """Return the base model's config.json, with the labels of the checkpoint's job."""
    file = next((file for file in base if file.name == CONFIG), None)
    if file is None:
        raise ValueError(f"its base model has no {CONFIG}")
    try:
        config = json.loads(await integrity.read_input(store, file))
    except BlobNotFound:
        raise ValueError(missing_message(file.path.split("/", 1)[0], f"blob {CONFIG}")) from None
    except RecursionError:
        raise ValueError(f"{CONFIG} of its base model is nested too deeply") from None
    if not isinstance(config, dict):
        raise ValueError(f"{CONFIG} of its base model holds no object")
    if spec.method == "classification":
        config |= {"id2label": {str(number): name for number, name in enumerate(spec.labels)}}
    return config


async def _blob(store: BlobStore, path: str) -> bytes:
    container, name = path.split("/", 1)
    try:
        return (await store.read(container, name))[0]
    except BlobNotFound:
        raise ValueError(missing_message(container, f"blob {name}").removesuffix(".")) from None
    except BlobTooLarge as error:
        raise ValueError(str(error)) from None


def _require_sha256(data: bytes, expected: str | None, name: str) -> None:
    if fault := integrity.describe_difference(data, expected):
        raise ValueError(f"{name} is not what the job has committed: {fault}")


def _input_file(path: str, data: bytes) -> InputFile:
    return InputFile(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest())
