"""Template functions that need nothing but their arguments."""

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, unquote

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


def _substring(source: str, start: int, length: int | None = None) -> str:
    end = len(source) if length is None else start + length
    if not 0 <= start <= end <= len(source):
        raise TemplateError(
            "The arguments of 'substring' must refer to a location within the string: the string "
            f"has {len(source)} characters."
        )
    return source[start:end]


def _split(source: str, marks: Json) -> list[str]:
    every = marks if isinstance(marks, list) else [marks]
    return re.split("|".join(re.escape(mark) for mark in every), source)


def _contains(container: Json, what: Json) -> bool:
    if isinstance(container, dict):
        return text(what).lower() in (name.lower() for name in container)
    return text(what) in container if isinstance(container, str) else what in container


def _union(*parts: Json) -> Json:
    if all(isinstance(part, dict) for part in parts):
        result: dict[str, Json] = {}
        for part in parts:
            for name, value in part.items():
                both = isinstance(value, dict) and isinstance(result.get(name), dict)
                result[name] = _union(result[name], value) if both else value
        return result
    return _distinct([element for part in parts for element in part])


def _intersection(*parts: Json) -> Json:
    first, *others = parts
    if isinstance(first, dict):
        return {k: v for k, v in first.items() if all(o.get(k) == v for o in others)}
    return _distinct([e for e in first if all(e in other for other in others)])


def _distinct(elements: list[Json]) -> list[Json]:
    return [e for n, e in enumerate(elements) if e not in elements[:n]]


def _create_object(*parts: Json) -> dict[str, Json]:
    if len(parts) % 2:
        raise TemplateError("The function 'createObject' expects an even number of parameters.")
    return dict(zip(parts[::2], parts[1::2], strict=True))


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


def _div(one: int, other: int) -> int:
    if other == 0:
        raise TemplateError("Division by zero.")
    return int(one / other)


def _extreme(pick: Callable[[list[int]], int]) -> Callable[..., int]:
    return lambda *parts: pick(parts[0] if isinstance(parts[0], list) else list(parts))


def _try_get(container: Json, *keys: Json) -> Json:
    for key in keys:
        try:
            container = container[key]
        except (KeyError, IndexError, TypeError):
            return None
    return container


FUNCTIONS: dict[str, Callable[..., Json]] = {
    "concat": _concat,
    "format": _format,
    "string": text,
    "tolower": lambda s: s.lower(),
    "toupper": lambda s: s.upper(),
    "trim": lambda s: s.strip(),
    "substring": _substring,
    "replace": lambda s, old, new: s.replace(old, new),
    "split": _split,
    "join": lambda parts, mark: mark.join(text(part) for part in parts),
    "startswith": lambda s, start: s.lower().startswith(start.lower()),
    "endswith": lambda s, end: s.lower().endswith(end.lower()),
    "indexof": lambda s, part: s.lower().find(part.lower()),
    "lastindexof": lambda s, part: s.lower().rfind(part.lower()),
    "padleft": lambda s, width, fill=" ": text(s).rjust(width, fill),
    "length": len,
    "empty": lambda container: container is None or len(container) == 0,
    "contains": _contains,
    "union": _union,
    "intersection": _intersection,
    "createobject": _create_object,
    "createarray": lambda *parts: list(parts),
    "array": lambda value: value if isinstance(value, list) else [value],
    "first": lambda parts: parts[0] if parts else None,
    "last": lambda parts: parts[-1] if parts else None,
    "take": lambda parts, count: parts[: max(count, 0)],
    "skip": lambda parts, count: parts[max(count, 0) :],
    "range": lambda start, count: list(range(start, start + count)),
    "items": lambda o: [{"key": k, "value": o[k]} for k in sorted(o)],
    "objectkeys": sorted,
    "flatten": lambda parts: [element for part in parts for element in part],
    "tryget": _try_get,
    "equals": _equals,
    "less": lambda one, other: one < other,
    "lessorequals": lambda one, other: one <= other,
    "greater": lambda one, other: one > other,
    "greaterorequals": lambda one, other: one >= other,
    "not": lambda value: not _bool(value),
    "true": lambda: True,
    "false": lambda: False,
    "null": lambda: None,
    "coalesce": lambda *parts: next((part for part in parts if part is not None), None),
    "int": _int,
    "bool": _bool,
    "json": json.loads,
    "add": lambda one, other: one + other,
    "sub": lambda one, other: one - other,
    "mul": lambda one, other: one * other,
    "div": _div,
    "mod": lambda one, other: one - other * _div(one, other),
    "min": _extreme(min),
    "max": _extreme(max),
    "base64": lambda s: base64.b64encode(s.encode()).decode(),
    "base64tostring": lambda s: base64.b64decode(s).decode(),
    "base64tojson": lambda s: json.loads(base64.b64decode(s)),
    "uricomponent": lambda s: quote(s, safe=""),
    "uricomponenttostring": unquote,
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
