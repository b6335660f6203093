"""Examples of requests, for the API document."""

from typing import Any

from fastapi.openapi.models import Example

from contract.methods import METHODS, Method

_HYPERPARAMETERS = {"n_epochs": 3, "batch_size": "auto"}
_BASE = {"model": "Qwen/Qwen3-8B", "training_file": "file-01k..."}
_LIMITS = {"budget": {"amount": "50"}, "deadline": 1790000000}
_GRADER = {
    "type": "string_check",
    "name": "exact",
    "input": "{{sample.output_text}}",
    "reference": "{{item.answer}}",
    "operation": "eq",
}


_OPTIONS: dict[str, Any] = {
    "supervised": {"hyperparameters": _HYPERPARAMETERS},
    "dpo": {"hyperparameters": {"beta": 0.1}},
    "reinforcement": {"grader": _GRADER},
}


def _example(name: Method) -> Example:
    options = {name: _OPTIONS[name]} if name in _OPTIONS else {}
    value = _BASE | {"method": {"type": name} | options}
    if name == "supervised":
        value |= {"training": {"adapter": {"type": "lora", "r": 16}}, "infrastructure": _LIMITS}
    return {"summary": METHODS[name].label, "value": value}


JOB_REQUESTS: dict[str, Example] = {name: _example(name) for name in METHODS}
