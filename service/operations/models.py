"""Base models that are staged into Blob: one container each, real once its HEAD is there."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from service.domain.errors import InvalidRequest
from service.storage.store import BlobNotFound, BlobStore
from trainer.contract import BaseModel, InputFile

_HEAD = "HEAD"


@dataclass(frozen=True, kw_only=True)
class StagedModel:
    """What a container's HEAD says."""

    model: BaseModel
    config: dict[str, Any]


def container(name: str) -> str:
    """The container that a model of this name always has."""
    return f"base-{hashlib.sha256(name.encode()).hexdigest()[:24]}"


async def find(store: BlobStore, name: str) -> StagedModel:
    """The staged model, or raise InvalidRequest (unsupported_model)."""
    where = container(name)
    try:
        head = json.loads((await store.read(where, _HEAD))[0])
    except BlobNotFound:
        raise InvalidRequest(
            f"Model {name!r} is not staged here. Stage it with `python -m rekindle.stage`, or use "
            "rekindle/tiny-llama.",
            code="unsupported_model",
            param="model",
        ) from None
    prefix = f"{where}/{head['revision']}"
    listed = tuple(
        InputFile(path=f"{prefix}/{f['name']}", size=f["size"], sha256=f["sha256"])
        for f in head["files"]
    )
    model = BaseModel(name=head["name"], revision=head["revision"], files=listed)
    return StagedModel(model=model, config=head["config"])
