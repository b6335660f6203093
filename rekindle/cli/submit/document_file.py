"""Read an object from a YAML, JSON or TOML file, for `submit --config` and `pipeline`.

YAML as people write it: `1e-5` is a number, a date is text, `on` and `no` are booleans. Refused:
duplicate names, aliases (a short file could stand for a huge one), tags, and numbers and text that
JSON cannot carry. TOML and JSON have no line numbers here; their parsers name the line of an error.
"""

import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 1_000_000
MAX_DEPTH = 64
_TOO_DEEP = f"it is nested deeper than {MAX_DEPTH} levels"
_TAG = "tag:yaml.org,2002:"
_INT = re.compile(r"[-+]?(?:0x[0-9a-fA-F_]+|0o[0-7_]+|[0-9][0-9_]*)\Z")
_FLOAT = re.compile(
    r"[-+]?(?:\.(?:inf|Inf|INF|nan|NaN|NAN)"
    r"|(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?)\Z"
)
_REPLACED_TAGS = {f"{_TAG}{kind}" for kind in ("int", "float", "timestamp", "merge", "value")}


class UnreadableDocument(ValueError):
    """A text is not a valid document; the message continues "FILE: "."""


@dataclass(frozen=True)
class Document:
    """A file's value, and the line number of each member by its dotted path."""

    value: object
    lines: Mapping[str, int] = field(default_factory=dict)


def read_document(path: Path) -> Document:
    """Read the file by its suffix: .toml, .json, and YAML for the rest.

    Raises:
        UnreadableDocument: The file cannot be read or is malformed.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise UnreadableDocument(error.strerror or "it cannot be read") from None
    if len(data) > MAX_BYTES:
        raise UnreadableDocument(f"it is larger than {MAX_BYTES // 1_000_000} MB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnreadableDocument("it is not UTF-8 text") from None
    return parse_document(text, path.suffix.lower())


def parse_document(text: str, suffix: str = ".yaml") -> Document:
    """Parse the text in the language of this suffix.

    Raises:
        UnreadableDocument: The text is malformed, or holds what JSON cannot carry.
    """
    try:
        document = _parse_by_suffix(text, suffix)
        check_json(document.value)
    except RecursionError:
        raise UnreadableDocument(_TOO_DEEP) from None
    return document


def _parse_by_suffix(text: str, suffix: str) -> Document:
    if suffix == ".toml":
        try:
            return Document(tomllib.loads(text))
        except ValueError as error:  # of the parser, or of a number with too many digits
            raise UnreadableDocument(f"it is not TOML: {error}") from None
    if suffix == ".json":
        try:
            return Document(json.loads(text, object_pairs_hook=_unique_members))
        except json.JSONDecodeError as error:
            if not re.search(r"^\s*#", text, re.MULTILINE):  # comments of `submit --dry-run`
                raise UnreadableDocument(f"it is not JSON: {error}") from None
        except ValueError as error:
            raise UnreadableDocument(str(error)) from None
    return _parse_yaml(text)


def _unique_members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members: dict[str, object] = {}
    for name, value in pairs:
        if name in members:
            raise UnreadableDocument(f"{name!r} is given twice")
        members[name] = value
    return members


def _parse_yaml(text: str) -> Document:
    import yaml

    try:
        node = yaml.compose(text, Loader=_loader())
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        why = ", ".join(filter(None, (error.context, error.problem)))
        raise UnreadableDocument(f"it is not YAML: line {line}: {why}") from None
    except yaml.YAMLError as error:
        raise UnreadableDocument(f"it is not YAML: {' '.join(str(error).split())}") from None
    if node is None:
        return Document(None)
    tree = _YamlConverter()
    return Document(tree.convert(node, ""), tree.lines)


@cache
def _loader() -> "type[yaml.SafeLoader]":
    """Return PyYAML's safe loader with YAML 1.2 numbers and without dates."""
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {  # noqa: RUF012 - as PyYAML declares it
            first: [(tag, form) for tag, form in resolvers if tag not in _REPLACED_TAGS]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    Loader.add_implicit_resolver(f"{_TAG}int", _INT, list("-+0123456789"))
    Loader.add_implicit_resolver(f"{_TAG}float", _FLOAT, list("-+.0123456789"))
    return Loader


class _YamlConverter:
    """Converts YAML nodes to plain values and keeps line numbers."""

    def __init__(self) -> None:
        self.lines: dict[str, int] = {}
        self._converted: set[int] = set()

    def convert(self, node: "yaml.Node", path: str) -> object:
        import yaml

        line = node.start_mark.line + 1
        if id(node) in self._converted:
            raise UnreadableDocument(f"line {line} uses an alias; write the value out")
        self._converted.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            return _parse_scalar(node.tag.removeprefix(_TAG), node.value, line)
        if node.tag.removeprefix(_TAG) not in ("seq", "map"):
            raise UnreadableDocument(f"line {line} has tag {node.tag}, which is not supported")
        if isinstance(node, yaml.SequenceNode):
            return [self.convert(item, f"{path}.{i}") for i, item in enumerate(node.value)]
        return self._convert_mapping(node.value, path)

    def _convert_mapping(self, pairs: "Iterable[tuple[yaml.Node, yaml.Node]]", path: str) -> object:
        members: dict[str, object] = {}
        for key, value in pairs:
            line, name = key.start_mark.line + 1, key.value
            if not isinstance(name, str):
                raise UnreadableDocument(f"line {line}: a name must be text")
            if name in members:
                raise UnreadableDocument(f"line {line}: {name!r} is given twice")
            at = f"{path}.{name}".removeprefix(".")
            self.lines[at] = line
            members[name] = self.convert(value, at)
        return members


def _parse_scalar(kind: str, text: str, line: int) -> object:
    try:
        match kind:
            case "null":
                return None
            case "bool":
                return text.lower() in ("yes", "true", "on")
            case "int":
                return int(text, 0 if re.match(r"[-+]?0[xo]", text) else 10)
            case "float":
                return float(re.sub(r"\.(?=[in])", "", text.lower().replace("_", "")))
            case "str":
                return text
            case _:
                why = f"has tag {kind}, which is not supported"
    except ValueError:
        raise UnreadableDocument(f"line {line}: {text[:40]!r} is not a number") from None
    raise UnreadableDocument(f"line {line} {why}")


def check_json(value: object, path: str = "", depth: int = 0) -> None:
    """Raise UnreadableDocument for a value that JSON cannot carry or that is too deep."""
    if depth > MAX_DEPTH:
        raise UnreadableDocument(_TOO_DEEP)
    if isinstance(value, Mapping | list):
        pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
        for name, inner in pairs:
            at = f"{path}.{name}".removeprefix(".")
            check_json(str(name), path, depth + 1)
            check_json(inner, at, depth + 1)
    elif why := _json_fault(value):
        raise UnreadableDocument(f"{path or 'it'} {why}")


def _json_fault(value: object) -> str:
    """Return why JSON cannot carry this scalar; empty if it can."""
    if isinstance(value, str):
        has_surrogate = any("\ud800" <= character <= "\udfff" for character in value)
        return "holds half a character (a surrogate)" if has_surrogate else ""
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"is {value}, which JSON cannot carry"
    return "" if isinstance(value, int | None) else "is a date: put it in quotes"
