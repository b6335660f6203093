"""What the trainer knows of a method beside its loss. Each method is a module, with a `KIND`."""

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
from trainer.process.non_retryable import Hopeless

T = TypeVar("T")
MORE_ANSWER = "Raise training.max_seq_len, shorten the prompts, or make the answers differ."


class Making(NamedTuple):
    """What a method is made of."""

    engine: Any
    base: Path  # the base model's files
    spec: RunSpec
    config: dict[str, Any]  # DeepSpeed's


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How a method is made, and what it is called."""

    make: Callable[[Making], Method]
    name: Callable[[RunSpec], str]  # for the model card
    target: str  # what a row has that can be learnt from
    remedy: str  # where no row has any
    has_margin: bool = False  # between the rewards of a row's answers
    one_pass: bool = True  # a step is one pass each way, and no more
    options: type[Any] | None = None  # the message in `method_options`


def kind_of(spec: RunSpec) -> Kind:
    """Return what is known of the run's method; raise Hopeless where it is none."""
    module = f"trainer.methods.{spec.method}"
    if spec.method.isidentifier() and find_spec(module) is not None:
        found = getattr(import_module(module), "KIND", None)
        if isinstance(found, Kind):
            return found
    raise Hopeless(
        f"this trainer does not know method {spec.method!r}; use the trainer image of the "
        "service's release"
    )


def options_of(spec: RunSpec, message: type[T]) -> T:
    """Decode the method's options; raise ValueError that names the one at fault."""
    return decode(message, json.loads(spec.method_options or "{}"), "method_options")
