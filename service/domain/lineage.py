"""From one model to the next: the names of models that jobs have made, and what a job is based on.

A name is `ft:{base model}:{project}:{suffix}:{job}`; whatever its parts hold, it ends with the job.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from contract.choices import Method
from service.domain.errors import InvalidRequest
from trainer.contract import Reinforcement, parse_grader, reward_models

PREFIX: Final = "ft:"
JOB: Final = "ftjob-"
OF_BASE: Final = "model"  # the parameters that name a model
OF_GRADER: Final = "method.reinforcement.grader.model"
_WITH_A_HEAD: Final[dict[Method, str]] = {
    "reward": "a reward model, which rates answers",
    "classification": "a classifier, which labels texts",
}


def model_name(base: str, project_id: str, suffix: str | None, job_id: str) -> str:
    """The name of what a job makes of ``base``, which may itself be such a name."""
    return f"{PREFIX}{first_base(base, project_id)}:{project_id}:{suffix or ''}:{job_id}"


def first_base(model: str, project_id: str) -> str:
    """The base model that the project's first job of the line began with."""
    if not model.startswith(PREFIX):
        return model
    return model.removeprefix(PREFIX).partition(f":{project_id}:")[0]


def is_made(model: str) -> bool:
    """Whether it names what a job has made, and not a base model that is staged."""
    return model.startswith((PREFIX, JOB))


def is_deleted(result: Mapping[str, Any] | None) -> bool:
    """Whether the model that this result of a job names was deleted by its user."""
    return result is not None and "deleted_at" in result


def maker(model: str) -> str:
    """The id of the job that has made it, in either way of naming it."""
    return model.rpartition(":")[2]


def judge(settings: Reinforcement | None) -> str | None:
    """The reward model that the grader asks, as the user names it; None where it asks none."""
    if settings is None:
        return None
    return next(iter(reward_models(parse_grader(json.loads(settings.grader)))), None)


def sources(model: str, settings: Reinforcement | None) -> frozenset[str]:
    """The jobs whose models a job with this base model and these settings reads."""
    named = (model, judge(settings))
    return frozenset(maker(name) for name in named if name is not None and is_made(name))


def refuse_other_head(name: str, made_by: Method, method: Method) -> None:
    """Raise InvalidRequest where a model with a head would have to write, or to judge otherwise."""
    if made_by in _WITH_A_HEAD and made_by != method:
        more = ""
        if made_by == "reward" and method == "reinforcement":
            more = ' To have it grade answers, name it in the grader: {"type": "reward_model"}.'
        raise InvalidRequest(
            f"{name} is {_WITH_A_HEAD[made_by]}, and only method {made_by} can go on from it. Take "
            f"a base model, or the model of a job of another method.{more}",
            code="unsupported_model",
            param=OF_BASE,
        )


def refuse_other_labels(name: str, known: list[str], wanted: list[str]) -> None:
    """Raise InvalidRequest where a classifier's head has other labels than the training file."""
    if known != wanted:
        raise InvalidRequest(
            f"{name} tells {', '.join(known[:10])} apart, and the training file has the labels "
            f"{', '.join(wanted[:10])}. Give a file with the same labels, or begin with a base "
            "model.",
            code="unsupported_model",
            param=OF_BASE,
        )


def refuse_no_judge(name: str, made_by: Method | None) -> None:
    """Raise InvalidRequest where a grader asks a model that rates nothing."""
    if made_by != "reward":
        what = "a base model" if made_by is None else f"the model of a job of method {made_by}"
        raise InvalidRequest(
            f"{name} is {what}, which rates nothing. Name the model of a job of method reward "
            "that has succeeded: ft:... .",
            code="unsupported_model",
            param=OF_GRADER,
        )
