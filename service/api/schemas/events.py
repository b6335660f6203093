"""Events and checkpoints of a job."""

from typing import Literal

from pydantic import Field, JsonValue

from service.api.schemas.base import Answer, Page, UnixTime, is_none


class Event(Answer):
    """Something that happened to a job, in a sentence."""

    id: str
    object: Literal["fine_tuning.job.event"] = "fine_tuning.job.event"
    created_at: UnixTime
    level: Literal["info", "warn", "error"]
    message: str
    type: Literal["message"] = "message"
    code: str
    """Stable name of the event; docs/troubleshooting.md explains each."""
    attempt: str | None
    data: dict[str, JsonValue] | None = Field(default=None, exclude_if=is_none)


class EventList(Page[Event]):
    """A page of events, newest first."""


class CheckpointMetrics(Answer):
    """What was measured at the checkpoint's step."""

    step: int
    train_loss: float | None = Field(default=None, exclude_if=is_none)
    train_mean_token_accuracy: float | None = Field(default=None, exclude_if=is_none)
    valid_loss: float | None = Field(default=None, exclude_if=is_none)


class Checkpoint(Answer):
    """A committed checkpoint."""

    id: str
    object: Literal["fine_tuning.job.checkpoint"] = "fine_tuning.job.checkpoint"
    created_at: UnixTime
    fine_tuned_model_checkpoint: str
    """Name of the checkpoint as a model."""
    fine_tuning_job_id: str
    step_number: int
    metrics: CheckpointMetrics
    kind: str
    kept_as: str | None
    """Why it is kept: `newest`, `best` or `milestone`."""
    size_bytes: int
    world_size: int
    generation: int


class CheckpointList(Page[Checkpoint]):
    """A page of checkpoints, newest first."""
