"""The descriptor of a training method. Each method is a module with a `KIND`."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from trainer.contract import RunSpec
from trainer.contract.wire import decode
from trainer.methods.interface import Method
from trainer.model.sequence_head import has_head
from trainer.process.non_retryable import NonRetryableError

T = TypeVar("T")
LONGER_ANSWERS = "Raise training.max_seq_len, shorten the prompts, or make the answers differ."


class MethodInputs(NamedTuple):
    """What a method is built from."""

    engine: Any
    base: Path  # the base model's files
    spec: RunSpec
    config: dict[str, Any]  # DeepSpeed's


@dataclass(frozen=True, kw_only=True)
class MethodDescriptor:
    """How a method is built, named and explained."""

    make: Callable[[MethodInputs], Method]
    name: Callable[[RunSpec], str]  # for the model card
    target: str  # what a row has that can be learnt from
    remedy: str  # where no row has any
    has_margin: bool = False  # between the rewards of a row's answers
    one_pass: bool = True  # a step is one pass each way, and no more
    options: type[Any] | None = None  # the message in `method_options`


def descriptor_of(spec: RunSpec) -> MethodDescriptor:
    """Return the descriptor of the run's method; raise NonRetryableError if it is unknown."""
    module = f"trainer.methods.{spec.method}"
    if spec.method.isidentifier() and find_spec(module) is not None:
        descriptor = getattr(import_module(module), "KIND", None)
        if isinstance(descriptor, MethodDescriptor):
            return descriptor
    raise NonRetryableError(
        f"this trainer does not know method {spec.method!r}; use the trainer image of the "
        "service's release"
    )


def method_options_of(spec: RunSpec, message: type[T]) -> T:
    """Decode the method's options; raise ValueError that names the one at fault."""
    return decode(message, json.loads(spec.method_options or "{}"), "method_options")


def require_valid_method(spec: RunSpec) -> None:
    """Raise NonRetryableError for an unknown method or options of another one."""
    if options := descriptor_of(spec).options:
        method_options_of(spec, options)
    elif spec.method_options:
        raise NonRetryableError(f"method {spec.method!r} has no member `method_options`")
    _require_own_members(spec)
    if spec.loss_chunk and spec.method != "supervised":
        raise NonRetryableError(f"method {spec.method!r} knows no chunks: leave out `loss_chunk`")
    if (spec.mix or spec.curriculum) and spec.method == "reinforcement":
        raise NonRetryableError("prompts are shuffled: leave out `mix` and `curriculum`")
    if spec.mix is not None and spec.curriculum is not None:
        raise NonRetryableError("rows have one order: leave out `mix` or `curriculum`")
    if spec.packing and (has_head(spec) or spec.method == "reinforcement"):
        raise NonRetryableError(f"method {spec.method!r} pads its rows: `packing` is not for it")


def _require_own_members(spec: RunSpec) -> None:
    """Raise NonRetryableError for options of another method."""
    if (spec.dpo is not None) != (spec.method == "dpo"):
        raise NonRetryableError(f"method {spec.method!r} and member `dpo` do not go together")
    if (spec.reinforcement is not None) != (spec.method == "reinforcement"):
        raise NonRetryableError(
            f"method {spec.method!r} and member `reinforcement` do not go together"
        )
    if (spec.ranked, spec.answers_per_row) != (None, 2) and spec.method != "reward":
        raise NonRetryableError(
            f"method {spec.method!r} learns from no rankings: leave out `ranked`"
        )
    if (len(spec.labels) > 1) != (spec.method == "classification"):
        raise NonRetryableError(
            f"method {spec.method!r} does not go with {len(spec.labels)} labels"
        )


def make_method(inputs: MethodInputs) -> Method:
    """Build the method."""
    return descriptor_of(inputs.spec).make(inputs)
