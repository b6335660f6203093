"""Merge the layers of `rekindle submit` into one request. Pure, except for the grader file."""

from collections.abc import Mapping, Sequence
from typing import Any

from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.formats import object_member
from rekindle.cli.submit import presets
from rekindle.cli.submit.grader_file import read_grader
from rekindle.cli.submit.job_config import (
    JobConfig,
    MemberSetting,
    apply_settings,
    merge_bodies,
    without_nulls,
)
from rekindle.cli.submit.options import MemberOptions
from rekindle.cli.submit.presets import Preset

Json = dict[str, Any]


def build_request(
    preset: str | None,
    config: JobConfig,
    member_options: MemberOptions,
    other_members: Json,
    settings: Sequence[MemberSetting],
) -> Json:
    """Return the merged request, with files by path; ``other_members`` holds other given members.

    Raises CliError if layers contradict each other, or the model or the file is missing.
    """
    base = presets.find_preset(preset) if preset else None
    option_settings = [
        MemberSetting(path=path, value=value) for path, value in member_options.members()
    ]
    body = apply_settings(
        settings, merge_bodies(config.body, apply_settings(option_settings, other_members))
    )
    method = _resolve_method(base, body, member_options)
    body = apply_settings(
        settings, merge_bodies(body, _method_members(method, body, member_options))
    )
    if base:
        _check_adapter(base, body)
        body = apply_settings(settings, merge_bodies(base.body(), body))
    adapter = object_member(object_member(body, "training"), "adapter")
    if member_options.lora_rank and "type" not in adapter:
        body["training"]["adapter"] = {"type": "lora", **adapter}
    _require_model_and_file(body)
    return without_nulls(body)


def _resolve_method(base: Preset | None, body: Json, member_options: MemberOptions) -> str:
    """Return the training method; raise CliError if it differs from the preset's."""
    method = (
        object_member(body, "method").get("type")
        if not member_options.method
        else member_options.method
    )
    if base is None:
        return str(method or "supervised")
    if method not in (None, base.method):
        raise _preset_error(
            f"The method is {method}, but preset {base.name} is for {base.method}.",
            "Omit --method or choose another preset.",
        )
    return base.method


def _method_members(method: str, body: Json, member_options: MemberOptions) -> Json:
    """Return the members that named options set in the method's options."""
    numbers = member_options.hyperparameters()
    members: Json = {"type": member_options.method} if member_options.method else {}
    layer: Json = {}
    if numbers and object_member(body, "hyperparameters"):  # where --config has them
        layer["hyperparameters"] = numbers
    elif numbers:
        members |= {"type": method, method: {"hyperparameters": numbers}}
    if member_options.grader:
        grader = {"grader": read_grader(member_options.grader)}
        members = merge_bodies(members, {"type": method, "reinforcement": grader})
    return layer | ({"method": members} if members else {})


def _check_adapter(base: Preset, body: Mapping[str, Any]) -> None:
    training = object_member(body, "training")
    if training.get("adapter") and not base.adapter and "learning_rate" not in training:
        raise _preset_error(
            f"Preset {base.name} is for full fine-tuning; adapters need another learning rate.",
            "Choose a preset with adapters, or add --learning-rate.",
        )


def _require_model_and_file(body: Mapping[str, Any]) -> None:
    if body.get("model") is None:
        raise CliError(
            "No model was given.",
            "Pass --model, or a --preset, which has one.",
            exit_code=ExitCode.USAGE,
            code="missing_required_parameter",
            param="model",
        )
    if body.get("training_file") is None:
        raise CliError(
            "No training file was given.",
            "Pass FILE, or a --config with training_file.",
            exit_code=ExitCode.USAGE,
            code="missing_required_parameter",
            param="training_file",
        )


def _preset_error(message: str, advice: str) -> CliError:
    return CliError(message, advice, exit_code=ExitCode.USAGE, code="wrong_preset")
