"""Models: base models, what jobs have made, and the files of a final model."""

from typing import Literal

from pydantic import Field

from service.api.schemas.base import Answer, UnixTime, is_none


class Model(Answer):
    """A base model, the final model of a job, or a checkpoint that a job can start from."""

    id: str
    object: Literal["model"] = "model"
    created: UnixTime
    owned_by: str
    """`base`, or the project whose job made it."""
    base_model: str | None = Field(default=None, exclude_if=is_none)
    """The `model` of the job that made it."""
    job: str | None = Field(default=None, exclude_if=is_none)
    """The job that made it."""
    step: int | None = Field(default=None, exclude_if=is_none)
    """Training step of a checkpoint; final models have none."""


class ModelList(Answer):
    """Every model that a job of the project can start from."""

    object: Literal["list"] = "list"
    data: list[Model]


class ModelDeleted(Answer):
    """The model was deleted."""

    id: str
    object: Literal["model"] = "model"
    deleted: Literal[True] = True
    bytes_freed: int


class ModelFile(Answer):
    """One file of a final model."""

    name: str
    bytes: int
    crc64nvme: str
    sha256: str


class ModelFiles(Answer):
    """The files of a job's final model, in Hugging Face's layout."""

    object: Literal["list"] = "list"
    data: list[ModelFile]
    has_more: Literal[False] = False
    path: str
    parameters_sha256: str
