"""Name the models that jobs make, and resolve what a job is based on.

A name is `ft:{base model}:{project}:{suffix}:{job}`; whatever its parts hold, it ends with the job.
A checkpoint's name is its job's, with `:ckpt-step-{step}` behind it.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from contract.methods import METHODS, Method
from service.domain.errors import UnsupportedModel
from trainer.contract import Reinforcement, parse_grader, reward_models

PREFIX: Final = "ft:"
JOB: Final = "ftjob-"
OF_BASE: Final = "model"  # the parameters that name a model
OF_GRADER: Final = "method.reinforcement.grader.model"
_CHECKPOINT = re.compile(r"(.*):ckpt-step-(0|[1-9]\d{0,8})", re.DOTALL)


@dataclass(frozen=True)
class ModelSource:
    """A job's final model (``step`` None), or its checkpoint of that step."""

    job_id: str
    step: int | None = None

    @property
    def is_checkpoint(self) -> bool:
        """Return whether it must be converted before it can be loaded."""
        return self.step is not None


def source(model: str) -> ModelSource:
    """Parse the name of a model or checkpoint that a job has made."""
    named, step = _split(model)
    return ModelSource(named.rpartition(":")[2], step)


def without_step(model: str) -> str:
    """Return the job's model name or id, without the step of a checkpoint's name."""
    return _split(model)[0]


def checkpoint_name(model: str, step: int) -> str:
    """Return the name of the checkpoint of this step of a job's model."""
    return f"{model}:ckpt-step-{step}"


def _split(model: str) -> tuple[str, int | None]:
    match = _CHECKPOINT.fullmatch(model)
    return (match[1], int(match[2])) if match else (model, None)


def model_name(base: str, project_id: str, suffix: str | None, job_id: str) -> str:
    """Return the name of what a job makes of ``base``, which may itself be such a name."""
    return f"{PREFIX}{first_base(base, project_id)}:{project_id}:{suffix or ''}:{job_id}"


def first_base(model: str, project_id: str) -> str:
    """Return the base model that the project's first job of the lineage began with."""
    if not model.startswith(PREFIX):
        return model
    return model.removeprefix(PREFIX).partition(f":{project_id}:")[0]


def is_made(model: str) -> bool:
    """Return whether it names what a job has made, and not a staged base model."""
    return model.startswith((PREFIX, JOB))


def is_deleted(result: Mapping[str, Any] | None) -> bool:
    """Return whether the user has deleted the model of this job result."""
    return result is not None and "deleted_at" in result


def training_job_id(model: str) -> str:
    """Return the id of the job that has made the model."""
    return source(model).job_id


def judge(settings: Reinforcement | None) -> str | None:
    """Return the reward model that the grader asks, as the user names it; None without one."""
    if settings is None:
        return None
    return next(iter(reward_models(parse_grader(json.loads(settings.grader)))), None)


def sources(model: str, settings: Reinforcement | None) -> frozenset[ModelSource]:
    """Return the models and checkpoints of other jobs that a job reads."""
    named = (model, judge(settings))
    return frozenset(source(name) for name in named if name is not None and is_made(name))


def base_of(maker: str) -> ModelSource | None:
    """Return the model of another job that must be read besides a checkpoint of ``maker``'s job.

    None for a staged base model. None as well where the job began with a checkpoint: what was made
    of it lies in the job's own container.
    """
    if not is_made(maker) or source(maker).is_checkpoint:
        return None
    return source(maker)


def refuse_checkpoint_as_judge(name: str) -> None:
    """Raise InvalidRequest if a grader asks a checkpoint."""
    if is_made(name) and source(name).is_checkpoint:
        raise UnsupportedModel(
            f"{name} is a checkpoint, and a grader takes final models only. Name the model of a "
            "job of method reward that has succeeded: ft:... .",
            param=OF_GRADER,
        )


def refuse_other_head(name: str, made_by: Method, method: Method) -> None:
    """Raise InvalidRequest if a model with a head would have to write or judge otherwise."""
    head = METHODS[made_by].head
    if head and made_by != method:
        hint = ""
        if made_by == "reward" and method == "reinforcement":
            hint = ' To have it grade answers, name it in the grader: {"type": "reward_model"}.'
        raise UnsupportedModel(
            f"{name} is {head}, and only method {made_by} can go on from it. Take "
            f"a base model, or the model of a job of another method.{hint}",
            param=OF_BASE,
        )


def refuse_other_labels(name: str, model_labels: list[str], file_labels: list[str]) -> None:
    """Raise InvalidRequest if a classifier's labels differ from the training file's."""
    if model_labels != file_labels:
        raise UnsupportedModel(
            f"{name} tells {', '.join(model_labels[:10])} apart, and the training file has the "
            f"labels {', '.join(file_labels[:10])}. Give a file with the same labels, or begin "
            "with a base model.",
            param=OF_BASE,
        )


def refuse_no_judge(name: str, made_by: Method | None) -> None:
    """Raise InvalidRequest if a grader asks a model that rates nothing."""
    if made_by != "reward":
        kind = "a base model" if made_by is None else f"the model of a job of method {made_by}"
        raise UnsupportedModel(
            f"{name} is {kind}, which rates nothing. Name the model of a job of method reward "
            "that has succeeded: ft:... .",
            param=OF_GRADER,
        )
