"""The request that `rekindle submit` makes of its layers. Pure, but for the grader's file."""

from collections.abc import Mapping, Sequence
from typing import Any

from rekindle.cli.errors import ExitCode, Trouble
from rekindle.cli.formats import part
from rekindle.cli.submit import presets
from rekindle.cli.submit.grader_file import read_grader
from rekindle.cli.submit.job_config import Config, Setting, apply, merge, without_nulls
from rekindle.cli.submit.options import Named
from rekindle.cli.submit.presets import Preset

Json = dict[str, Any]


def request(
    preset: str | None, config: Config, named: Named, own: Json, sets: Sequence[Setting]
) -> Json:
    """The request, files by their paths. ``own``: members of named options that stand ready.

    Raises Trouble where the layers contradict each other, or a model or a file is missing.
    """
    start = presets.named(preset) if preset else None
    given = [Setting(path=path, value=value) for path, value in named.members()]
    asked = apply(sets, merge(config.body, apply(given, own)))
    kind = _method(start, asked, named)
    asked = apply(sets, merge(asked, _of_the_method(kind, asked, named)))
    if start:
        _check_adapter(start, asked)
        asked = apply(sets, merge(start.body(), asked))
    adapter = part(part(asked, "training"), "adapter")
    if named.lora_rank and "type" not in adapter:
        asked["training"]["adapter"] = {"type": "lora", **adapter}
    _require_model_and_file(asked)
    return without_nulls(asked)


def _method(start: Preset | None, asked: Json, named: Named) -> str:
    """The method of the job; raises Trouble if it is not the preset's."""
    own = part(asked, "method").get("type") if not named.method else named.method
    if start is None:
        return str(own or "supervised")
    if own not in (None, start.method):
        raise _wrong(
            f"The method is {own}, and preset {start.name} is a recipe for {start.method}.",
            "Leave one of them out.",
        )
    return start.method


def _of_the_method(kind: str, asked: Json, named: Named) -> Json:
    """Members that named options set in the options of the method."""
    numbers = named.hyperparameters()
    found: Json = {"type": named.method} if named.method else {}
    layer: Json = {}
    if numbers and part(asked, "hyperparameters"):  # where --config has them
        layer["hyperparameters"] = numbers
    elif numbers:
        found |= {"type": kind, kind: {"hyperparameters": numbers}}
    if named.grader:
        grader = {"grader": read_grader(named.grader)}
        found = merge(found, {"type": kind, "reinforcement": grader})
    return layer | ({"method": found} if found else {})


def _check_adapter(start: Preset, asked: Mapping[str, Any]) -> None:
    training = part(asked, "training")
    if training.get("adapter") and not start.adapter and "learning_rate" not in training:
        raise _wrong(
            f"Preset {start.name} trains all weights; adapters need another learning rate.",
            "Choose a preset with adapters, or add --learning-rate.",
        )


def _require_model_and_file(asked: Mapping[str, Any]) -> None:
    if asked.get("model") is None:
        raise Trouble(
            "The model to train is missing.",
            "Give --model, or a --preset that names one.",
            exit_code=ExitCode.USAGE,
            code="missing_required_parameter",
            param="model",
        )
    if asked.get("training_file") is None:
        raise Trouble(
            "The training file is missing.",
            "Give FILE, or a --config with a training_file.",
            exit_code=ExitCode.USAGE,
            code="missing_required_parameter",
            param="training_file",
        )


def _wrong(message: str, advice: str) -> Trouble:
    return Trouble(message, advice, exit_code=ExitCode.USAGE, code="wrong_preset")
