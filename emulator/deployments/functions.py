"""Template functions that need nothing but their arguments."""

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from emulator.deployments.expressions import TemplateError

Json = Any
GUIDS = uuid.UUID("11fb06fb-712d-4ddd-98c7-e71bbd588830")


def text(value: Json) -> str:
    """A value as `string` and `concat` write it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None:
        return {True: "True", False: "False", None: ""}[value]
    return json.dumps(value, separators=(",", ":"))


def _concat(*parts: Json) -> Json:
    if parts and all(isinstance(part, list) for part in parts):
        return [element for part in parts for element in part]
    return "".join(text(part) for part in parts)


def _format(pattern: str, *values: Json) -> str:
    def fill(found: re.Match[str]) -> str:
        if found[0] in ("{{", "}}"):
            return found[0][0]
        number, width = int(found[1]), found[2]
        value = values[number]
        return f"{value:0{width}d}" if width and isinstance(value, int) else text(value)

    return re.sub(r"\{\{|\}\}|\{(\d+)(?::[dD](\d+))?\}", fill, pattern)


def _split(source: str, marks: Json) -> list[str]:
    every = marks if isinstance(marks, list) else [marks]
    return re.split("|".join(re.escape(mark) for mark in every), source)


def _contains(container: Json, what: Json) -> bool:
    if isinstance(container, dict):
        return text(what).lower() in (name.lower() for name in container)
    return text(what) in container if isinstance(container, str) else what in container


def _equals(one: Json, other: Json) -> bool:
    same_type = isinstance(one, bool) == isinstance(other, bool)
    return bool(one == other) and same_type


def _int(value: Json) -> int:
    return int(value)


def _bool(value: Json) -> bool:
    if isinstance(value, str) and value.lower() not in ("true", "false", "1", "0"):
        raise ValueError(value)
    return value.lower() in ("true", "1") if isinstance(value, str) else bool(value)


def _unique(*parts: Json) -> str:
    """Thirteen characters; always the same ones, but not Azure's."""
    digest = hashlib.sha256("\0".join(text(part) for part in parts).encode()).digest()
    return base64.b32encode(digest).decode().lower()[:13]


def _extreme(pick: Callable[[list[int]], int]) -> Callable[..., int]:
    return lambda *parts: pick(parts[0] if isinstance(parts[0], list) else list(parts))


FUNCTIONS: dict[str, Callable[..., Json]] = {
    "concat": _concat,
    "format": _format,
    "string": text,
    "tolower": lambda s: s.lower(),
    "toupper": lambda s: s.upper(),
    "replace": lambda s, old, new: s.replace(old, new),
    "split": _split,
    "join": lambda parts, mark: mark.join(text(part) for part in parts),
    "length": len,
    "empty": lambda container: container is None or len(container) == 0,
    "contains": _contains,
    "createarray": lambda *parts: list(parts),
    "first": lambda parts: parts[0] if parts else None,
    "last": lambda parts: parts[-1] if parts else None,
    "take": lambda parts, count: parts[: max(count, 0)],
    "equals": _equals,
    "less": lambda one, other: one < other,
    "greater": lambda one, other: one > other,
    "not": lambda value: not _bool(value),
    "true": lambda: True,
    "false": lambda: False,
    "null": lambda: None,
    "int": _int,
    "bool": _bool,
    "min": _extreme(min),
    "max": _extreme(max),
    "uricomponent": lambda s: quote(s, safe=""),
    "uniquestring": _unique,
    "guid": lambda *parts: str(uuid.uuid5(GUIDS, "-".join(text(part) for part in parts))),
}


def apply(name: str, arguments: list[Json]) -> Json:
    """The value of a function, or TemplateError."""
    function = FUNCTIONS.get(name.lower())
    if function is None:
        raise TemplateError(
            f"The template function '{name}' is not valid. Please see "
            "https://aka.ms/arm-functions for usage details."
        )
    try:
        return function(*arguments)
    except (TypeError, ValueError, AttributeError, IndexError, KeyError) as error:
        raise TemplateError(
            f"Unable to evaluate template language function '{name}': the type or number of its "
            f"parameters is not valid ({error}). Please see https://aka.ms/arm-functions/{name} "
            "for usage details."
        ) from None
