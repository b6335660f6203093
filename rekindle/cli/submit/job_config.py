"""The request of `rekindle submit`, made of layers: preset, --config, named options, --set.

A later layer wins, member by member; a `--set` sets its member to exactly what it says. The whole
is held against the request's model before anything is uploaded.
"""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rekindle.cli.errors import ExitCode, Trouble
from rekindle.cli.formats import part
from rekindle.cli.submit import document_file, job_settings
from rekindle.cli.submit.document_file import UnreadableDocument

Json = dict[str, Any]
FILES = ("training_file", "validation_file")
_EXAMPLE = "Write it as MEMBER=VALUE, such as training.ema_decay=0.99."


@dataclass(frozen=True, kw_only=True)
class Config:
    """What a file of --config says, and where its members stand; nothing without one."""

    body: Json = field(default_factory=dict)
    path: Path | None = None
    lines: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One --set."""

    path: str
    value: object


def read_config(path: Path | None) -> Config:
    """Read a file of --config; files that it names lie beside it. Raises Trouble."""
    if path is None:
        return Config()
    try:
        document = document_file.read(path)
    except UnreadableDocument as error:
        raise _bad_config(path, str(error)) from None
    body = document.value
    if isinstance(body, dict) and body.get("object") == "plan":
        body = body.get("request")  # what `submit --dry-run --json` prints
    if not isinstance(body, dict) or not body:
        found = "it is empty" if body in (None, {}, "") else f"it is a {type(body).__name__}"
        raise _bad_config(path, f"{found}, but it must hold the members of a job")
    return Config(body=files_beside(body, path.parent), path=path, lines=document.lines)


def files_beside(body: Json, folder: Path) -> Json:
    """The body with paths of files relative to ``folder``; ids of uploads stay."""
    named = {name: body[name] for name in FILES if isinstance(body.get(name), str)}
    return body | {
        name: value if value.startswith("file-") else str(folder / value)
        for name, value in named.items()
    }


def parse_setting(text: str) -> Setting:
    """Parse MEMBER=VALUE, the value as YAML; raises Trouble for an unknown member."""
    path, is_pair, value = text.partition("=")
    path = path.strip()
    if not is_pair or not all(path.split(".")):
        known = job_settings.find(path) if path else None
        about = f" It holds: {known.help}." if known and known.help else ""
        raise _bad_setting(text, f"it is no MEMBER=VALUE.{about}", _EXAMPLE)
    member = job_settings.find(path)
    if member is None:
        raise _trouble(job_settings.unknown(path), f"--set {text}: ")
    return Setting(path=path, value=_value(text, value, member))


def apply(settings: Iterable[Setting], body: Json) -> Json:
    """The body with every setting applied in order; raises Trouble below what is no object."""
    changed = deepcopy(body)
    for setting in settings:
        *parents, last = setting.path.split(".")
        inside = changed
        for depth, name in enumerate(parents, start=1):
            below = inside.get(name)
            if below is not None and not isinstance(below, dict):
                raise _no_members(".".join(parents[:depth]), below)
            if below is None:
                inside[name] = {}
            inside = inside[name]
        inside[last] = deepcopy(setting.value)
    return changed


def merge(below: Mapping[str, Any], above: Mapping[str, Any], path: str = "") -> Json:
    """Both, member by member; ``above`` wins, with its nulls. Raises Trouble below what is none."""
    merged = dict(below)
    for name, value in above.items():
        under, at = merged.get(name), f"{path}{name}"
        if not isinstance(value, Mapping) or under is None:
            merged[name] = value
        elif isinstance(under, Mapping):
            merged[name] = merge(under, value, f"{at}.")
        else:
            raise _no_members(at, under)
    return merged


def without_nulls(body: Mapping[str, Any]) -> Json:
    """The body without members of the first floor that say nothing."""
    return {name: value for name, value in body.items() if value not in (None, {})}


def check(body: Json, config: Config, settings: Iterable[Setting]) -> None:
    """Raise Trouble for the first thing that is wrong, with where it was said."""
    fault = _not_json(body) or _other_method(body) or job_settings.fault_of(body)
    if fault is None:
        return
    own = next((s.path for s in settings if _is_within(fault.param, s.path)), None)
    if own is not None:
        raise _trouble(fault, f"--set {own}: " if own != fault.param else "--set ")
    raise _trouble(fault, _place(fault.param, config))


def _not_json(body: Json) -> job_settings.Fault | None:
    """What cannot be sent, such as an argument that is not UTF-8."""
    try:
        document_file.check_json(body)
    except UnreadableDocument as error:
        return job_settings.Fault("", f"The request: {error}.", "Write it in UTF-8.", "bad_text")
    return None


def _other_method(body: Json) -> job_settings.Fault | None:
    """Options of a method that is not the one of the job."""
    method = part(body, "method")
    kind = method.get("type", "supervised")
    for name in method:
        if (
            name not in ("type", kind)
            and method[name] is not None
            and job_settings.find(f"method.{name}")
        ):
            at = f"method.{name}"
            message = f"{at} has options of {name}, and the method is {kind}."
            advice = f"Add --method {name}, or leave {at} out."
            return job_settings.Fault(at, message, advice, "wrong_method")
    return None


def _place(param: str, config: Config) -> str:
    """File and line of a member that the config says; empty for others."""
    if config.path is None or param.partition(".")[0] not in config.body:
        return ""
    line = config.lines.get(param)
    return f"{config.path}:{line}: " if line else f"{config.path}: "


def _is_within(path: str, outer: str) -> bool:
    return path == outer or path.startswith(f"{outer}.")


def _value(text: str, written: str, member: job_settings.Member) -> object:
    """The value as YAML; as it is written where text, or a decimal, is meant."""
    if member.kinds == {"string"} and not _is_quoted_or_null(written):
        return written
    try:
        value = document_file.parse(written).value
    except UnreadableDocument as error:
        advice = f"Expected: {member.help}." if member.help else _EXAMPLE
        raise _bad_setting(text, f"the value: {error}.", advice) from None
    return written.strip() if member.is_decimal and isinstance(value, float) else value


def _is_quoted_or_null(written: str) -> bool:
    text = written.strip()
    return text in ("null", "~") or (len(text) > 1 and text[0] == text[-1] and text[0] in "'\"")


def _trouble(fault: job_settings.Fault, where: str) -> Trouble:
    return Trouble(
        f"{where}{fault.message}",
        fault.advice,
        exit_code=ExitCode.USAGE,
        code=fault.code,
        param=fault.param,
    )


def _no_members(path: str, value: object) -> Trouble:
    return Trouble(
        f"{path} is {value!r:.40}, which has no members of its own.",
        f"Give an object for {path}, or leave out what is set below it.",
        exit_code=ExitCode.USAGE,
        code="invalid_value",
        param=path,
    )


def _bad_setting(text: str, why: str, advice: str) -> Trouble:
    message = f"--set {text[:80]}: {why}"
    return Trouble(message, advice, exit_code=ExitCode.USAGE, code="bad_setting")


def _bad_config(path: Path, why: str) -> Trouble:
    return Trouble(
        f"--config {path}: {why}.",
        "It is the body of POST /v1/fine_tuning/jobs in YAML, JSON or TOML; "
        "`rekindle submit FILE --dry-run` prints one.",
        exit_code=ExitCode.USAGE,
        code="bad_config",
    )
