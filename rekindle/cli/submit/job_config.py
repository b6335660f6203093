"""Layers of a job's request: preset, --config, named options and --set, merged and validated.

A later layer wins, member by member; `--set` replaces its member as a whole. The result is
validated against the request's model before anything is uploaded.
"""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.formats import object_member
from rekindle.cli.submit import document_file, job_settings
from rekindle.cli.submit.document_file import UnreadableDocument

Json = dict[str, Any]
FILES = ("training_file", "validation_file")
_EXAMPLE = "Write it as MEMBER=VALUE, for example training.ema_decay=0.99."


@dataclass(frozen=True, kw_only=True)
class JobConfig:
    """Members of a --config file and their line numbers; empty without a file."""

    body: Json = field(default_factory=dict)
    path: Path | None = None
    lines: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MemberSetting:
    """One --set: a dotted member and its value."""

    path: str
    value: object


def read_config(path: Path | None) -> JobConfig:
    """Read a --config file; paths in it are relative to its folder. Raises CliError."""
    if path is None:
        return JobConfig()
    try:
        document = document_file.read_document(path)
    except UnreadableDocument as error:
        raise _bad_config(path, str(error)) from None
    body = document.value
    if isinstance(body, dict) and body.get("object") == "plan":
        body = body.get("request")  # what `submit --dry-run --json` prints
    if not isinstance(body, dict) or not body:
        problem = "it is empty" if body in (None, {}, "") else f"it is a {type(body).__name__}"
        raise _bad_config(path, f"{problem}, but it must be an object with job members")
    return JobConfig(body=resolve_file_paths(body, path.parent), path=path, lines=document.lines)


def resolve_file_paths(body: Json, folder: Path) -> Json:
    """Return the body with file paths relative to ``folder``; file ids are unchanged."""
    paths = {name: body[name] for name in FILES if isinstance(body.get(name), str)}
    return body | {
        name: value if value.startswith("file-") else str(folder / value)
        for name, value in paths.items()
    }


def parse_setting(text: str) -> MemberSetting:
    """Parse MEMBER=VALUE with a YAML value; raise CliError for an unknown member."""
    path, is_pair, value = text.partition("=")
    path = path.strip()
    if not is_pair or not all(path.split(".")):
        matching_member = job_settings.find_member(path) if path else None
        expected = (
            f" Expected value: {matching_member.help}."
            if matching_member and matching_member.help
            else ""
        )
        raise _bad_setting(text, f"it is not MEMBER=VALUE.{expected}", _EXAMPLE)
    member = job_settings.find_member(path)
    if member is None:
        raise _fault_error(job_settings.unknown_member(path), f"--set {text}: ")
    return MemberSetting(path=path, value=_parse_value(text, value, member))


def apply_settings(settings: Iterable[MemberSetting], body: Json) -> Json:
    """Return the body with all settings applied in order; raise CliError below a non-object."""
    changed = deepcopy(body)
    for setting in settings:
        *parents, last = setting.path.split(".")
        inside = changed
        for depth, name in enumerate(parents, start=1):
            below = inside.get(name)
            if below is not None and not isinstance(below, dict):
                raise _not_an_object(".".join(parents[:depth]), below)
            if below is None:
                inside[name] = {}
            inside = inside[name]
        inside[last] = deepcopy(setting.value)
    return changed


def merge_bodies(below: Mapping[str, Any], above: Mapping[str, Any], path: str = "") -> Json:
    """Merge two bodies member by member; ``above`` wins, nulls included. Raises CliError."""
    merged = dict(below)
    for name, value in above.items():
        under, at = merged.get(name), f"{path}{name}"
        if not isinstance(value, Mapping) or under is None:
            merged[name] = value
        elif isinstance(under, Mapping):
            merged[name] = merge_bodies(under, value, f"{at}.")
        else:
            raise _not_an_object(at, under)
    return merged


def without_nulls(body: Mapping[str, Any]) -> Json:
    """Return the body without top-level members that are null or empty."""
    return {name: value for name, value in body.items() if value not in (None, {})}


def check_body(body: Json, config: JobConfig, settings: Iterable[MemberSetting]) -> None:
    """Raise CliError for the first invalid member, with the option or file line that set it."""
    fault = _text_fault(body) or _method_fault(body) or job_settings.find_fault(body)
    if fault is None:
        return
    setting_path = next((s.path for s in settings if _is_at_or_below(fault.param, s.path)), None)
    if setting_path is not None:
        raise _fault_error(
            fault, f"--set {setting_path}: " if setting_path != fault.param else "--set "
        )
    raise _fault_error(fault, _config_location(fault.param, config))


def _text_fault(body: Json) -> job_settings.RequestFault | None:
    """Return the fault of text that JSON cannot carry, such as an argument that is not UTF-8."""
    try:
        document_file.check_json(body)
    except UnreadableDocument as error:
        return job_settings.RequestFault(
            "", f"The request: {error}.", "Write it in UTF-8.", "bad_text"
        )
    return None


def _method_fault(body: Json) -> job_settings.RequestFault | None:
    """Return the fault of options that belong to another method than the job's."""
    method = object_member(body, "method")
    kind = method.get("type", "supervised")
    for name in method:
        if (
            name not in ("type", kind)
            and method[name] is not None
            and job_settings.find_member(f"method.{name}")
        ):
            at = f"method.{name}"
            message = f"{at} sets options of {name}, but the method is {kind}."
            advice = f"Add --method {name}, or omit {at}."
            return job_settings.RequestFault(at, message, advice, "wrong_method")
    return None


def _config_location(param: str, config: JobConfig) -> str:
    """Return file and line of a member that --config sets; empty for others."""
    if config.path is None or param.partition(".")[0] not in config.body:
        return ""
    line = config.lines.get(param)
    return f"{config.path}:{line}: " if line else f"{config.path}: "


def _is_at_or_below(path: str, outer: str) -> bool:
    return path == outer or path.startswith(f"{outer}.")


def _parse_value(text: str, value_text: str, member: job_settings.RequestMember) -> object:
    """Parse the value as YAML; keep it as text for text members and decimals."""
    if member.kinds == {"string"} and not _is_quoted_or_null(value_text):
        return value_text
    try:
        value = document_file.parse_document(value_text).value
    except UnreadableDocument as error:
        advice = f"Expected: {member.help}." if member.help else _EXAMPLE
        raise _bad_setting(text, f"the value: {error}.", advice) from None
    return value_text.strip() if member.is_decimal and isinstance(value, float) else value


def _is_quoted_or_null(value_text: str) -> bool:
    text = value_text.strip()
    return text in ("null", "~") or (len(text) > 1 and text[0] == text[-1] and text[0] in "'\"")


def _fault_error(fault: job_settings.RequestFault, where: str) -> CliError:
    return CliError(
        f"{where}{fault.message}",
        fault.advice,
        exit_code=ExitCode.USAGE,
        code=fault.code,
        param=fault.param,
    )


def _not_an_object(path: str, value: object) -> CliError:
    return CliError(
        f"{path} is {value!r:.40}, which has no members of its own.",
        f"Pass an object for {path}, or omit its members.",
        exit_code=ExitCode.USAGE,
        code="invalid_value",
        param=path,
    )


def _bad_setting(text: str, why: str, advice: str) -> CliError:
    message = f"--set {text[:80]}: {why}"
    return CliError(message, advice, exit_code=ExitCode.USAGE, code="bad_setting")


def _bad_config(path: Path, why: str) -> CliError:
    return CliError(
        f"--config {path}: {why}.",
        "Write the body of POST /v1/fine_tuning/jobs in YAML, JSON or TOML; "
        "`rekindle submit FILE --dry-run` prints an example.",
        exit_code=ExitCode.USAGE,
        code="bad_config",
    )
