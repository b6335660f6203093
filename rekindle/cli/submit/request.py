"""Merge the layers of `rekindle submit` into one request. Pure, except for the grader file."""

from collections.abc import Mapping, Sequence
from typing import Any

from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.formats import object_member
from rekindle.cli.submit import presets
from rekindle.cli.submit.grader_file import read_grader
from rekindle.cli.submit.job_config import JobConfig, MemberSetting, apply, merge, without_nulls
from rekindle.cli.submit.options import MemberOptions
from rekindle.cli.submit.presets import Preset

Json = dict[str, Any]


def request(
    preset: str | None,
    config: JobConfig,
    named: MemberOptions,
    own: Json,
    sets: Sequence[MemberSetting],
) -> Json:
    """Return the merged request, with files by path; ``own`` holds other given members.

    Raises CliError if layers contradict each other, or the model or the file is missing.
    """
    start = presets.named(preset) if preset else None
    given = [MemberSetting(path=path, value=value) for path, value in named.members()]
    asked = apply(sets, merge(config.body, apply(given, own)))
    kind = _method(start, asked, named)
    asked = apply(sets, merge(asked, _of_the_method(kind, asked, named)))
    if start:
        _check_adapter(start, asked)
        asked = apply(sets, merge(start.body(), asked))
    adapter = object_member(object_member(asked, "training"), "adapter")
    if named.lora_rank and "type" not in adapter:
        asked["training"]["adapter"] = {"type": "lora", **adapter}
    _require_model_and_file(asked)
    return without_nulls(asked)


def _method(start: Preset | None, asked: Json, named: MemberOptions) -> str:
    """Return the training method; raise CliError if it differs from the preset's."""
    own = object_member(asked, "method").get("type") if not named.method else named.method
    if start is None:
        return str(own or "supervised")
    if own not in (None, start.method):
        raise _wrong(
            f"The method is {own}, but preset {start.name} is for {start.method}.",
            "Omit --method or choose another preset.",
        )
    return start.method


def _of_the_method(kind: str, asked: Json, named: MemberOptions) -> Json:
    """Return the members that named options set in the method's options."""
    numbers = named.hyperparameters()
    found: Json = {"type": named.method} if named.method else {}
    layer: Json = {}
    if numbers and object_member(asked, "hyperparameters"):  # where --config has them
        layer["hyperparameters"] = numbers
    elif numbers:
        found |= {"type": kind, kind: {"hyperparameters": numbers}}
    if named.grader:
        grader = {"grader": read_grader(named.grader)}
        found = merge(found, {"type": kind, "reinforcement": grader})
    return layer | ({"method": found} if found else {})


def _check_adapter(start: Preset, asked: Mapping[str, Any]) -> None:
    training = object_member(asked, "training")
    if training.get("adapter") and not start.adapter and "learning_rate" not in training:
        raise _wrong(
            f"Preset {start.name} is for full fine-tuning; adapters need another learning rate.",
            "Choose a preset with adapters, or add --learning-rate.",
        )


def _require_model_and_file(asked: Mapping[str, Any]) -> None:
    if asked.get("model") is None:
        raise CliError(
            "No model was given.",
            "Pass --model, or a --preset, which has one.",
            exit_code=ExitCode.USAGE,
            code="missing_required_parameter",
            param="model",
        )
    if asked.get("training_file") is None:
        raise CliError(
            "No training file was given.",
            "Pass FILE, or a --config with training_file.",
            exit_code=ExitCode.USAGE,
            code="missing_required_parameter",
            param="training_file",
        )


def _wrong(message: str, advice: str) -> CliError:
    return CliError(message, advice, exit_code=ExitCode.USAGE, code="wrong_preset")
