"""Translate pydantic's errors into messages for people."""

import difflib
import types
from collections.abc import Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel

from contract.described import descriptions
from service.domain.errors import (
    InvalidRequest,
    MissingParameter,
    ServiceError,
    UnknownParameter,
    UnsupportedMediaType,
)

_AUTO = "literal['auto']"  # how pydantic names the two sides of "auto or a number"
_NUMBERS = ("constrained-int", "constrained-float")
# Names that other services and programs use: a hint is better than the most similar name.
_FOREIGN_NAMES = {
    "prompt_loss_weight": "Only answers are trained. Give a message weight 0 to leave it out.",
    "l2_multiplier": "Leave it out: weight decay is fixed.",
    "epochs": "Use method.TYPE.hyperparameters.n_epochs.",
    "num_train_epochs": "Use method.TYPE.hyperparameters.n_epochs.",
    "per_device_train_batch_size": "Use method.TYPE.hyperparameters.batch_size.",
    "lr": "Use training.learning_rate.",
    "lora": 'Use training.adapter: {"type": "lora"}.',
    "lora_r": "Use training.adapter.r.",
    "max_length": "Use training.max_seq_len.",
    "gpus": "Use infrastructure.nodes; the plan chooses the VM size.",
    "budget": 'Use infrastructure.budget: {"amount": "50"}.',
    "deadline": "Use infrastructure.deadline, in Unix seconds.",
}
_EXPECTED = "Send JSON with the header `Content-Type: application/json`"
_MAX_NAME_LENGTH = 64  # that is compared with ours: the cost grows with its square
Path = tuple[int | str, ...]
Faults = Sequence[Any]  # pydantic's errors()


def request_error(request: Request, error: RequestValidationError) -> ServiceError:
    """Return the error that names the first member at fault, and what to send instead."""
    faults: Faults = error.errors()
    location, *path = faults[0]["loc"]
    if location != "body":
        return _parameter_error(faults[0], ".".join(map(str, path)))
    if isinstance(error.body, bytes):
        return _media_type_error(request)
    if not path and faults[0]["type"] == "missing":
        return MissingParameter(f"The body is empty, but a JSON object is expected. {_EXPECTED}.")
    return member_error(_body_model(request), [f | {"loc": f["loc"][1:]} for f in faults])


def member_error(kind: Any, faults: Faults) -> InvalidRequest:  # noqa: ANN401 - a model, or a union
    """Return what is wrong with a value of this kind: the first of pydantic's ``faults``."""
    # Why one is missing.
    faults = sorted(faults, key=lambda fault: fault["type"] != "extra_forbidden")
    fault = next((f for f in faults if f["loc"][-1:] != (_AUTO,)), faults[0])
    path, message = tuple(fault["loc"]), fault["msg"]
    if not path:
        return InvalidRequest("The body is JSON, but a JSON object is expected.")
    if fault["type"] == "model_attributes_type":
        message = f"a JSON object is expected. {_FOREIGN_NAMES.get(str(path[-1]), '')}".rstrip(". ")
    if path[-1] in _NUMBERS:
        path, message = path[:-1], f"{message}, or 'auto'"
    model = _model_at(kind, path[:-1])
    param = ".".join(map(str, path))
    if fault["type"] == "extra_forbidden":
        message = f"{param}: unknown member. {_suggest_member(model, path)}"
        return UnknownParameter(message, param=param)
    if fault["type"] == "missing":
        message = f"{param}: missing. {_description(model, path[-1])}".rstrip()
        return MissingParameter(message, param=param)
    return InvalidRequest(f"{param}: {message}.", param=param)


def _media_type_error(request: Request) -> ServiceError:
    kind = request.headers.get("content-type")
    fault = f"has content type {kind:.80}" if kind else "has no content type"
    return UnsupportedMediaType(f"The body {fault}, but JSON is expected. {_EXPECTED}.")


def _parameter_error(fault: dict[str, Any], name: str) -> ServiceError:
    code = "missing_required_parameter" if fault["type"] == "missing" else "invalid_value"
    return InvalidRequest(f"{name}: {fault['msg']}.", code=code, param=name)


def _body_model(request: Request) -> Any:  # noqa: ANN401 - a model, or what a union holds
    field = getattr(request.scope["route"], "body_field", None)
    return field.field_info.annotation if field else None


def _suggest_member(model: type[BaseModel] | None, path: Path) -> str:
    """Name the known member most like the unknown one, or all members."""
    if path[-1] in _FOREIGN_NAMES:
        return _FOREIGN_NAMES[str(path[-1])]
    if model is None:
        return "Leave it out."
    members = sorted(field.alias or name for name, field in model.model_fields.items())
    matches = difflib.get_close_matches(str(path[-1])[:_MAX_NAME_LENGTH], members, n=1)
    if matches:
        return f"Did you mean {'.'.join(map(str, (*path[:-1], matches[0])))}?"
    return f"Known members here: {', '.join(members)}."


def _description(model: type[BaseModel] | None, name: int | str) -> str:
    return descriptions(model).get(str(name), "") if model else ""


def _model_at(kind: Any, path: Path) -> type[BaseModel] | None:  # noqa: ANN401 - any annotation
    """Return the model whose member ``path`` leads to; None where it is no model."""
    models = _models(kind)
    for step in path:
        annotations = [m.model_fields[step].annotation for m in models if step in m.model_fields]
        named = [m for m in models if m.__name__ == step]  # pydantic names the sides of a union
        members = [model for annotation in annotations for model in _models(annotation)]
        models = named or members or models
    return models[0] if models else None


def _models(kind: Any) -> list[type[BaseModel]]:  # noqa: ANN401 - any annotation
    """Return every model in an annotation such as ``list[Model] | None``."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    if get_origin(kind) in (Union, types.UnionType, Annotated, list, dict, tuple):
        return [model for arg in get_args(kind) for model in _models(arg)]
    return []
