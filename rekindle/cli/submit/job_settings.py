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
_ALIKE = 0.72  # difflib ratio: `packed` is `packing`, `lora_rank` is not `loss_chunk`
_SAY_NOTHING: tuple[object, ...] = (None, "", [], {})
_PLACEHOLDER = "file-placeholder"  # a file is checked before it has an id


@dataclass(frozen=True)
class RequestMember:
    """One member of the request, with its dotted path and JSON schema."""

    path: str
    schema: Json

    @property
    def kinds(self) -> set[str]:
        """JSON types that the member accepts, except null; empty: any."""
        return {each["type"] for each in _sides(self.schema) if "type" in each} - {"null"}

    @property
    def is_decimal(self) -> bool:
        """Whether the member is a number that may be text, to be exact."""
        texts = [side for side in _sides(self.schema) if side.get("type") == "string"]
        return "number" in self.kinds and any(not _enumerated(side) for side in texts)

    @property
    def choices(self) -> list[str]:
        """The allowed values, if they are enumerated."""
        found = [v for side in _sides(self.schema) for v in _enumerated(side)]
        return [json.dumps(v).strip('"') for v in dict.fromkeys(found) if v != ""]

    @property
    def is_group(self) -> bool:
        """Whether the member has members of its own."""
        return any(_named(self.schema))

    @property
    def help(self) -> str:
        """Description, type, bounds and default in one line."""
        about = str(self.schema.get("description", "")).split("\n", maxsplit=1)[0]
        return ". ".join(filter(None, (about.removesuffix("."), self._values())))

    def _values(self) -> str:
        sides = [side for side in _sides(self.schema) if side.get("type") != "null"]
        if self.is_decimal:
            sides = [side for side in sides if side.get("type") != "string"]
        said = " or ".join(dict.fromkeys(filter(None, map(_said, sides))))
        default = self.schema.get("default")
        if default in _SAY_NOTHING or isinstance(default, dict):
            return said
        shown = default if isinstance(default, str) else json.dumps(default)
        return f"{said}; default {shown}".removeprefix("; ")


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

    found: Json = JobRequest.model_json_schema()
    return found


def every() -> list[RequestMember]:
    """Return all members, each group before its members."""
    return list({member.path: member for member in _below(_schema(), "")}.values())


def find(path: str) -> RequestMember | None:
    """Return the member of this dotted path, or None. Free-form objects accept any member."""
    schema = _schema()
    for name in path.split("."):
        below = _inside(schema, name)
        if below is None:
            return None
        schema = below
    return RequestMember(path, schema)


def nearest(path: str) -> str | None:
    """Return the member that was probably meant: same name elsewhere, or a similar name."""
    known = [member.path for member in every()]
    place, _, name = path.rpartition(".")
    beside = {p.rpartition(".")[2]: p for p in known if p.rpartition(".")[0] == place}
    names = {p.rpartition(".")[2]: p for p in reversed(known)}  # the first of a name stays
    if name in names:
        return names[name]
    whole = {} if place in known else {p: p for p in known}
    for typed, paths in ((name, beside), (name, names), (path, whole)):
        for close in difflib.get_close_matches(typed, paths, n=1, cutoff=_ALIKE):
            return paths[close]
    return None


def fault_of(body: Json) -> RequestFault | None:
    """Return the first fault that the service would find in this request, or None."""
    from pydantic import ValidationError

    from contract.job import JobRequest

    text = json.dumps({"training_file": _PLACEHOLDER} | body)
    try:
        JobRequest.model_validate_json(text)
    except ValidationError as error:
        return _fault(error.errors(include_url=False))
    return None


def unknown(path: str) -> RequestFault:
    """Return the fault of a member that does not exist."""
    place = path.rpartition(".")[0]
    parent = find(place) if place else None
    names = [name for name, _ in _named(parent.schema if parent else _schema())]
    if parent and not names:
        advice = f"{place} has no members of its own; expected value: {parent.help}."
    elif meant := nearest(path):
        advice = f"Did you mean {meant}?"
    else:
        advice = f"{place or 'A job'} has these members: {', '.join(names)}."
    return RequestFault(path, f"{path} is not a member of a job.", advice, "unknown_parameter")


def complete(incomplete: str) -> list[tuple[str, str]]:
    """Return completions of `--set`: member names, or values after `=` or a unique name."""
    name, is_whole, value = incomplete.partition("=")
    if is_whole:
        return [(f"{name}={each}", about) for each, about in complete_value(name, value)]
    found = [m for m in every() if not m.is_group and m.path.startswith(name)]
    if len(found) == 1 and (values := complete_value(found[0].path, "")):
        return [(f"{found[0].path}={each}", about) for each, about in values]
    return [(f"{member.path}=", member.help) for member in found]


def complete_value(name: str, incomplete: str) -> list[tuple[str, str]]:
    """Return values of a member that begin with ``incomplete``, each with the member's help."""
    member = find(name)
    values = member.choices if member else []
    return [(v, member.help) for v in values if v.startswith(incomplete)] if member else []


def _below(schema: Json, prefix: str) -> Iterator[RequestMember]:
    for name, inner in _named(schema):
        yield RequestMember(prefix + name, inner)
        yield from _below(inner, f"{prefix}{name}.")


def _named(schema: Json) -> Iterator[tuple[str, Json]]:
    """Yield names and schemas of members; those in several alternatives are alternatives."""
    found: dict[str, list[Json]] = {}
    for side in _sides(schema):
        for name, inner in side.get("properties", {}).items():
            if inner not in (known := found.setdefault(name, [])):
                known.append(inner)
    yield from ((n, all_[0] if len(all_) == 1 else {"anyOf": all_}) for n, all_ in found.items())


def _inside(schema: Json, name: str) -> Json | None:
    """Return the schema of a member; None if there is none."""
    for known, inner in _named(schema):
        if known == name:
            return inner
    for side in _sides(schema):
        more = side.get("additionalProperties")
        if isinstance(more, dict):
            return more
        if more is True or not side.keys() - {"title", "description", "default"}:
            return {}
    return None


def _sides(schema: Json) -> Iterator[Json]:
    """Yield the schema or its alternatives, with references resolved."""
    if "$ref" in schema:
        beside = {name: value for name, value in schema.items() if name != "$ref"}
        yield from _sides(_schema()["$defs"][schema["$ref"].rpartition("/")[2]] | beside)
        return
    for kind in ("anyOf", "oneOf", "allOf"):
        if kind in schema:
            for side in schema[kind]:
                yield from _sides(side)
            return
    yield schema


def _enumerated(side: Json) -> list[object]:
    if side.get("type") == "boolean":
        return [True, False]
    return list(side.get("enum", [])) or ([side["const"]] if "const" in side else [])


def _said(side: Json) -> str:
    """Return type, choices and bounds in words."""
    if side.get("type") == "boolean":
        return "true or false"
    if choices := [str(value) for value in _enumerated(side) if value != ""]:
        return f"one of {', '.join(choices)}" if len(choices) > 1 else choices[0]
    if side.get("type") == "array":
        return " of ".join(filter(None, ("list", *map(_said, _sides(side.get("items", {}))))))
    bounds = [f"{word} {_number(side[name])}" for name, word in _BOUNDS.items() if name in side]
    return " ".join(filter(None, (str(side.get("type", "")), " and ".join(bounds))))


def _number(value: float) -> str:
    return f"{value:,}".removesuffix(".0")


def _fault(faults: "list[ErrorDetails]") -> RequestFault:
    found = next(f for f in faults if f["loc"][-1:] != (_AUTO,))  # the number's is beside it
    where = _path(found["loc"], is_unknown=found["type"] == "extra_forbidden")
    if found["type"] == "extra_forbidden":
        return unknown(where)
    member = find(where)
    wanted = f"Expected: {member.help}." if member and member.help else ""
    if found["type"] == "missing":
        value = member.choices[0] if member and member.choices else "VALUE"
        advice = f"Add --set {where}={value}. {wanted}".strip()
        return RequestFault(where, f"{where} is missing.", advice, "missing_required_parameter")
    if member and member.kinds == {"string"} and isinstance(found["input"], int | float):
        wanted = f"Put it in quotes. {wanted}"
    given = json.dumps(found["input"], default=str)
    shown = f"{given[:60]}..." if len(given) > 60 else given
    why = f"{found['msg'][:1].lower()}{found['msg'][1:]}".replace("input should", "it must")
    return RequestFault(where, f"{where} is {shown}: {why}.", wanted, "invalid_value")


def _path(location: tuple[int | str, ...], *, is_unknown: bool) -> str:
    """Return the dotted path, without the words that pydantic adds for union members."""
    path: list[str] = []
    for index, part in enumerate(map(str, location)):
        is_last = index == len(location) - 1
        if find(".".join([*path, part])) or part.isdecimal() or (is_last and is_unknown):
            path.append(part)
    return ".".join(path)
