"""Models: base models that are staged in Blob, and models that jobs have made.

A base model has a container of its own and exists once the HEAD there names its files.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import Set
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.jobs import jobs
from service.db.jobs.jobs import JobRow
from service.domain.errors import UnsupportedModel
from service.domain.models import lineage
from service.domain.models.architecture import Architecture
from service.domain.states import JobState
from service.storage.store import BlobNotFound, BlobStore, Container
from trainer.contract import InputFile, PinnedModel

HEAD = "HEAD"
PREFIX = "base-"
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_SHARD = re.compile(r"(model-)(\d+)(-of-)(\d+)(\.safetensors)")
_STAGE_HINT = "To stage a model: python -m rekindle.stage --name NAME DIR"
_MAX_NAMES_SHOWN = 5  # names of staged models in an error


@dataclass(frozen=True, kw_only=True)
class StagedModel:
    """The content of the HEAD of a model's container."""

    model: PinnedModel
    config: dict[str, Any]

    @cached_property
    def arch(self) -> Architecture:
        """Return the model's architecture for the planner, or raise InvalidRequest."""
        return Architecture.from_config(self.config)


@dataclass(frozen=True, kw_only=True)
class ListedBaseModel:
    """A base model as it is listed."""

    name: str
    staged_at: datetime


def container(name: str) -> str:
    """Return the name of the container of the model of this name."""
    return f"{PREFIX}{hashlib.sha256(name.encode()).hexdigest()[:24]}"


async def find_staged_model(store: BlobStore, name: str) -> StagedModel:
    """Return the staged model, or raise InvalidRequest (unsupported_model)."""
    container_name = container(name)
    try:
        data, _ = await store.read(container_name, HEAD)
        staged = parse_head(container_name, data)
        defect = describe_defect({PurePosixPath(file.path).name for file in staged.model.files})
        if not defect:
            return staged
        fault = f"Model {name!r} cannot be loaded: {defect}. Stage the whole model again."
    except BlobNotFound:
        fault = f"Model {name!r} is not staged here. {await _describe_choices(store)}"
    except ValueError as error:
        fault = f"Model {name!r} is staged incorrectly ({error}). {await _describe_choices(store)}"
    raise UnsupportedModel(fault, param="model")


async def _describe_choices(store: BlobStore) -> str:
    """Return what a user can do about a model that cannot be used."""
    names = sorted(base.name for base in await list_base_models(store))
    if not names:
        return f"No base model is staged. {_STAGE_HINT}"
    suffix = (
        f" and {len(names) - _MAX_NAMES_SHOWN} more (GET /v1/models)"
        if len(names) > _MAX_NAMES_SHOWN
        else ""
    )
    return f"Use {', '.join(names[:_MAX_NAMES_SHOWN])}{suffix}. {_STAGE_HINT}"


def describe_defect(files: Set[str]) -> str:
    """Return what is missing from the files of a staged model; empty if it may be whole."""
    if "adapter_config.json" in files:
        return "adapter_config.json makes it an adapter, not a model of its own"
    if _SINGLE in files:
        return ""
    if _INDEX not in files:
        return f"it has neither {_SINGLE} nor {_INDEX}"
    for shard in filter(None, map(_SHARD.fullmatch, sorted(files))):
        prefix, number, middle, count, end = shard.groups()
        for n in range(1, min(int(count), len(files) + 1) + 1):
            shard_name = f"{prefix}{n:0{len(number)}}{middle}{count}{end}"
            if shard_name not in files:
                return f"its shard {shard_name} is missing"
    return ""


async def list_base_models(store: BlobStore) -> list[ListedBaseModel]:
    """Return every base model that a job may start from, by name."""
    bases = await asyncio.gather(
        *(_base(store, entry) for entry in await store.list_containers(PREFIX))
    )
    return sorted((b for b in bases if b is not None), key=lambda b: b.name)


def full_name(job: JobRow) -> str:
    """Return the name that the job's model has, or will have."""
    return lineage.model_name(job.model, job.project_id, job.request.get("suffix"), job.id)


async def list_fine_tuned(conn: AsyncConnection, project_id: str) -> list[JobRow]:
    """Return the project's jobs that have a model, newest first."""
    rows = await jobs.in_state(conn, project_id, JobState.SUCCEEDED)
    return [job for job in rows if not lineage.is_deleted(job.result)]


async def find_maker(conn: AsyncConnection, project_id: str, name: str) -> JobRow | None:
    """Return the project's job that the name of a model ends with, if there is one."""
    return await jobs.find(conn, lineage.training_job_id(name), project_id)


async def find_base_model(store: BlobStore, name: str) -> ListedBaseModel | None:
    """Return the base model of this name, if a job may start from it."""
    for entry in await store.list_containers(container(name)):
        base = await _base(store, entry)
        if base is not None and base.name == name:
            return base
    return None


def parse_head(container_name: str, data: bytes) -> StagedModel:
    """Parse the HEAD of a model's container; raises ValueError where it is invalid."""
    try:
        head = json.loads(data)
        prefix = f"{container_name}/{head['revision']}"
        files = tuple(
            InputFile(path=f"{prefix}/{f['name']}", size=f["size"], sha256=f["sha256"])
            for f in head["files"]
        )
        model = PinnedModel(name=str(head["name"]), revision=str(head["revision"]), files=files)
        return StagedModel(model=model, config=dict(head["config"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"its HEAD lacks {error}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"its HEAD is no JSON: {error}") from None


async def _base(store: BlobStore, entry: Container) -> ListedBaseModel | None:
    try:
        data, _ = await store.read(entry.name, HEAD)
        return ListedBaseModel(
            name=parse_head(entry.name, data).model.name, staged_at=entry.modified_at
        )
    except (BlobNotFound, ValueError):
        return None  # not yet staged, or unusable: a job on it is refused with the reason
