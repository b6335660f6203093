"""Models: base models that are staged into Blob, and those that jobs have made of them.

A base model has a container of its own and is real once the HEAD there names its files.
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
from service.domain.errors import InvalidRequest
from service.domain.models import lineage
from service.domain.models.architecture import Architecture
from service.domain.states import JobState
from service.storage.store import BlobNotFound, BlobStore, Container
from trainer.contract import BaseModel, InputFile

HEAD = "HEAD"
PREFIX = "base-"
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_SHARD = re.compile(r"(model-)(\d+)(-of-)(\d+)(\.safetensors)")
_STAGE = "To stage a model: python -m rekindle.stage --name NAME DIR"
_SHOWN = 5  # names of staged models in an error


@dataclass(frozen=True, kw_only=True)
class StagedModel:
    """What a container's HEAD says."""

    model: BaseModel
    config: dict[str, Any]

    @cached_property
    def arch(self) -> Architecture:
        """What the planner must know of it, or InvalidRequest."""
        return Architecture.from_config(self.config)


@dataclass(frozen=True, kw_only=True)
class Base:
    """A base model as it is listed."""

    name: str
    staged_at: datetime


def container(name: str) -> str:
    """The container that a model of this name always has."""
    return f"{PREFIX}{hashlib.sha256(name.encode()).hexdigest()[:24]}"


async def find(store: BlobStore, name: str) -> StagedModel:
    """The staged model, or raise InvalidRequest (unsupported_model)."""
    where = container(name)
    try:
        data, _ = await store.read(where, HEAD)
        found = parsed(where, data)
        lack = lacking({PurePosixPath(file.path).name for file in found.model.files})
        if not lack:
            return found
        fault = f"Model {name!r} cannot be loaded: {lack}. Stage the whole model again."
    except BlobNotFound:
        fault = f"Model {name!r} is not staged here. {await _choices(store)}"
    except ValueError as error:
        fault = f"Model {name!r} is not staged as it should be ({error}). {await _choices(store)}"
    raise InvalidRequest(fault, code="unsupported_model", param="model")


async def _choices(store: BlobStore) -> str:
    """What a user can do about a model that cannot be used."""
    names = sorted(base.name for base in await staged(store))
    if not names:
        return f"No base model is staged. {_STAGE}"
    more = f" and {len(names) - _SHOWN} more (GET /v1/models)" if len(names) > _SHOWN else ""
    return f"Use {', '.join(names[:_SHOWN])}{more}. {_STAGE}"


def lacking(files: Set[str]) -> str:
    """Say why these files of a staged model are not one whole model; "" if they may be.

    Staging checks more, and may not have been done by `rekindle`.
    """
    if "adapter_config.json" in files:
        return "adapter_config.json makes it an adapter, not a model of its own"
    if _SINGLE in files:
        return ""
    if _INDEX not in files:
        return f"it has neither {_SINGLE} nor {_INDEX}"
    for shard in filter(None, map(_SHARD.fullmatch, sorted(files))):
        begin, number, middle, count, end = shard.groups()
        for n in range(1, min(int(count), len(files) + 1) + 1):
            other = f"{begin}{n:0{len(number)}}{middle}{count}{end}"
            if other not in files:
                return f"its shard {other} is missing"
    return ""


async def staged(store: BlobStore) -> list[Base]:
    """Every base model that a job may start from, by name."""
    found = await asyncio.gather(
        *(_base(store, where) for where in await store.list_containers(PREFIX))
    )
    return sorted((b for b in found if b is not None), key=lambda b: b.name)


def full_name(job: JobRow) -> str:
    """The name that the job's model has, or will have."""
    return lineage.model_name(job.model, job.project_id, job.request.get("suffix"), job.id)


async def made(conn: AsyncConnection, project_id: str) -> list[JobRow]:
    """The project's jobs that have a model, newest first."""
    found = await jobs.in_state(conn, project_id, JobState.SUCCEEDED)
    return [job for job in found if not lineage.is_deleted(job.result)]


async def made_as(conn: AsyncConnection, project_id: str, name: str) -> JobRow | None:
    """The project's job that a model of this name would be of: a name ends with its job."""
    return await jobs.find(conn, lineage.maker(name), project_id)


async def base(store: BlobStore, name: str) -> Base | None:
    """The base model of this name, if a job may start from it."""
    for where in await store.list_containers(container(name)):
        found = await _base(store, where)
        if found is not None and found.name == name:
            return found
    return None


def parsed(where: str, data: bytes) -> StagedModel:
    """What the HEAD of a container says; ValueError when it makes no sense."""
    try:
        head = json.loads(data)
        prefix = f"{where}/{head['revision']}"
        files = tuple(
            InputFile(path=f"{prefix}/{f['name']}", size=f["size"], sha256=f["sha256"])
            for f in head["files"]
        )
        model = BaseModel(name=str(head["name"]), revision=str(head["revision"]), files=files)
        return StagedModel(model=model, config=dict(head["config"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"its HEAD lacks {error}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"its HEAD is no JSON: {error}") from None


async def _base(store: BlobStore, where: Container) -> Base | None:
    try:
        data, _ = await store.read(where.name, HEAD)
        return Base(name=parsed(where.name, data).model.name, staged_at=where.modified_at)
    except (BlobNotFound, ValueError):
        return None  # on its way, or unusable: a job on it is refused with the reason
