"""Members of a job's request from its JSON schema: names, help, values and faults.

The request's model is imported when a command first needs it.
"""

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Json = dict[str, Any]
_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}
_AUTO = "literal['auto']"  # how pydantic names one side of "auto or a number"
_SIMILARITY = 0.72  # difflib ratio: `packed` is `packing`, `lora_rank` is not `loss_chunk`
_UNINFORMATIVE: tuple[object, ...] = (None, "", [], {})
_PLACEHOLDER = "file-placeholder"  # a file is checked before it has an id


@dataclass(frozen=True)
class RequestMember:
    """One member of the request, with its dotted path and JSON schema."""

    path: str
    schema: Json

    @property
    def kinds(self) -> set[str]:
        """JSON types that the member accepts, except null; empty: any."""
        return {
            alternative["type"]
            for alternative in _alternatives(self.schema)
            if "type" in alternative
        } - {"null"}

    @property
    def is_decimal(self) -> bool:
        """Whether the member is a number that may be text, to be exact."""
        texts = [
            alternative
            for alternative in _alternatives(self.schema)
            if alternative.get("type") == "string"
        ]
        return "number" in self.kinds and any(
            not _enum_values(alternative) for alternative in texts
        )

    @property
    def choices(self) -> list[str]:
        """The allowed values, if they are enumerated."""
        values = [
            v for alternative in _alternatives(self.schema) for v in _enum_values(alternative)
        ]
        return [json.dumps(v).strip('"') for v in dict.fromkeys(values) if v != ""]

    @property
    def is_group(self) -> bool:
        """Whether the member has members of its own."""
        return any(_member_schemas(self.schema))

    @property
    def help(self) -> str:
        """Description, type, bounds and default in one line."""
        about = str(self.schema.get("description", "")).split("\n", maxsplit=1)[0]
        return ". ".join(filter(None, (about.removesuffix("."), self._value_help())))

    def _value_help(self) -> str:
        sides = [
            alternative
            for alternative in _alternatives(self.schema)
            if alternative.get("type") != "null"
        ]
        if self.is_decimal:
            sides = [alternative for alternative in sides if alternative.get("type") != "string"]
        types = " or ".join(dict.fromkeys(filter(None, map(_describe_type, sides))))
        default = self.schema.get("default")
        if default in _UNINFORMATIVE or isinstance(default, dict):
            return types
        text = default if isinstance(default, str) else json.dumps(default)
        return f"{types}; default {text}".removeprefix("; ")


@dataclass(frozen=True)
class RequestFault:
    """What is wrong with a request: dotted member, message and advice."""

    param: str
    message: str
    advice: str
    code: str


@cache
def _schema() -> Json:
    from contract.job import JobRequest

    schema: Json = JobRequest.model_json_schema()
    return schema


def all_members() -> list[RequestMember]:
    """Return all members, each group before its members."""
    return list({member.path: member for member in _nested_members(_schema(), "")}.values())


def find_member(path: str) -> RequestMember | None:
    """Return the member of this dotted path, or None. Free-form objects accept any member."""
    schema = _schema()
    for name in path.split("."):
        below = _member_schema(schema, name)
        if below is None:
            return None
        schema = below
    return RequestMember(path, schema)


def nearest_member(path: str) -> str | None:
    """Return the likely member: the same name in another group, or a similar name."""
    all_paths = [member.path for member in all_members()]
    group, _, name = path.rpartition(".")
    siblings = {p.rpartition(".")[2]: p for p in all_paths if p.rpartition(".")[0] == group}
    names = {p.rpartition(".")[2]: p for p in reversed(all_paths)}  # the first of a name stays
    if name in names:
        return names[name]
    by_path = {} if group in all_paths else {p: p for p in all_paths}
    for typed, paths in ((name, siblings), (name, names), (path, by_path)):
        for close in difflib.get_close_matches(typed, paths, n=1, cutoff=_SIMILARITY):
            return paths[close]
    return None


def find_fault(body: Json) -> RequestFault | None:
    """Return the first fault that the service would find in this request, or None."""
    from pydantic import ValidationError

    from contract.job import JobRequest

    text = json.dumps({"training_file": _PLACEHOLDER} | body)
    try:
        JobRequest.model_validate_json(text)
    except ValidationError as error:
        return _first_fault(error.errors(include_url=False))
    return None


def unknown_member(path: str) -> RequestFault:
    """Return the fault of a member that does not exist."""
    group = path.rpartition(".")[0]
    parent = find_member(group) if group else None
    names = [name for name, _ in _member_schemas(parent.schema if parent else _schema())]
    if parent and not names:
        advice = f"{group} has no members of its own; expected value: {parent.help}."
    elif nearest := nearest_member(path):
        advice = f"Did you mean {nearest}?"
    else:
        advice = f"{group or 'A job'} has these members: {', '.join(names)}."
    return RequestFault(path, f"{path} is not a member of a job.", advice, "unknown_parameter")


def complete_setting(incomplete: str) -> list[tuple[str, str]]:
    """Return completions of `--set`: member names, or values after `=` or a unique name."""
    name, has_value, value = incomplete.partition("=")
    if has_value:
        return [(f"{name}={candidate}", about) for candidate, about in complete_value(name, value)]
    matching = [m for m in all_members() if not m.is_group and m.path.startswith(name)]
    if len(matching) == 1 and (values := complete_value(matching[0].path, "")):
        return [(f"{matching[0].path}={candidate}", about) for candidate, about in values]
    return [(f"{member.path}=", member.help) for member in matching]


def complete_value(name: str, incomplete: str) -> list[tuple[str, str]]:
    """Return values of a member that begin with ``incomplete``, each with the member's help."""
    member = find_member(name)
    values = member.choices if member else []
    return [(v, member.help) for v in values if v.startswith(incomplete)] if member else []


def _nested_members(schema: Json, prefix: str) -> Iterator[RequestMember]:
    for name, inner in _member_schemas(schema):
        yield RequestMember(prefix + name, inner)
        yield from _nested_members(inner, f"{prefix}{name}.")


def _member_schemas(schema: Json) -> Iterator[tuple[str, Json]]:
    """Yield names and schemas of members; those in several alternatives are alternatives."""
    schemas: dict[str, list[Json]] = {}
    for alternative in _alternatives(schema):
        for name, inner in alternative.get("properties", {}).items():
            if inner not in (alternatives := schemas.setdefault(name, [])):
                alternatives.append(inner)
    yield from ((n, all_[0] if len(all_) == 1 else {"anyOf": all_}) for n, all_ in schemas.items())


def _member_schema(schema: Json, name: str) -> Json | None:
    """Return the schema of a member; None if there is none."""
    for member_name, inner in _member_schemas(schema):
        if member_name == name:
            return inner
    for alternative in _alternatives(schema):
        additional = alternative.get("additionalProperties")
        if isinstance(additional, dict):
            return additional
        if additional is True or not alternative.keys() - {"title", "description", "default"}:
            return {}
    return None


def _alternatives(schema: Json) -> Iterator[Json]:
    """Yield the schema or its alternatives, with references resolved."""
    if "$ref" in schema:
        overrides = {name: value for name, value in schema.items() if name != "$ref"}
        yield from _alternatives(_schema()["$defs"][schema["$ref"].rpartition("/")[2]] | overrides)
        return
    for kind in ("anyOf", "oneOf", "allOf"):
        if kind in schema:
            for alternative in schema[kind]:
                yield from _alternatives(alternative)
            return
    yield schema


def _enum_values(alternative: Json) -> list[object]:
    if alternative.get("type") == "boolean":
        return [True, False]
    return list(alternative.get("enum", [])) or (
        [alternative["const"]] if "const" in alternative else []
    )


def _describe_type(alternative: Json) -> str:
    """Return type, choices and bounds in words."""
    if alternative.get("type") == "boolean":
        return "true or false"
    if choices := [str(value) for value in _enum_values(alternative) if value != ""]:
        return f"one of {', '.join(choices)}" if len(choices) > 1 else choices[0]
    if alternative.get("type") == "array":
        return " of ".join(
            filter(
                None, ("list", *map(_describe_type, _alternatives(alternative.get("items", {}))))
            )
        )
    bounds = [
        f"{relation} {_format_number(alternative[name])}"
        for name, relation in _BOUNDS.items()
        if name in alternative
    ]
    return " ".join(filter(None, (str(alternative.get("type", "")), " and ".join(bounds))))


def _format_number(value: float) -> str:
    return f"{value:,}".removesuffix(".0")


def _first_fault(faults: "list[ErrorDetails]") -> RequestFault:
    fault = next(f for f in faults if f["loc"][-1:] != (_AUTO,))  # a fault of the number follows
    where = _dotted_path(fault["loc"], is_unknown=fault["type"] == "extra_forbidden")
    if fault["type"] == "extra_forbidden":
        return unknown_member(where)
    member = find_member(where)
    expected = f"Expected: {member.help}." if member and member.help else ""
    if fault["type"] == "missing":
        value = member.choices[0] if member and member.choices else "VALUE"
        advice = f"Add --set {where}={value}. {expected}".strip()
        return RequestFault(where, f"{where} is missing.", advice, "missing_required_parameter")
    if member and member.kinds == {"string"} and isinstance(fault["input"], int | float):
        expected = f"Put it in quotes. {expected}"
    value_text = json.dumps(fault["input"], default=str)
    short_text = f"{value_text[:60]}..." if len(value_text) > 60 else value_text
    why = f"{fault['msg'][:1].lower()}{fault['msg'][1:]}".replace("input should", "it must")
    return RequestFault(where, f"{where} is {short_text}: {why}.", expected, "invalid_value")


def _dotted_path(location: tuple[int | str, ...], *, is_unknown: bool) -> str:
    """Return the dotted path, without the words that pydantic adds for union members."""
    path: list[str] = []
    for index, part in enumerate(map(str, location)):
        is_last = index == len(location) - 1
        if find_member(".".join([*path, part])) or part.isdecimal() or (is_last and is_unknown):
            path.append(part)
    return ".".join(path)
