"""Template functions that need nothing but their arguments: those that infra/ and az use."""

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
    """Return a value as text, as `string` and `concat` write it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None:
        return {True: "True", False: "False", None: ""}[value]
    return json.dumps(value, separators=(",", ":"))


def _format(pattern: str, *values: Json) -> str:
    def fill(match: re.Match[str]) -> str:
        if match[0] in ("{{", "}}"):
            return match[0][0]
        return text(values[int(match[1])])

    return re.sub(r"\{\{|\}\}|\{(\d+)\}", fill, pattern)


def _bool(value: Json) -> bool:
    if isinstance(value, str) and value.lower() not in ("true", "false", "1", "0"):
        raise ValueError(value)
    return value.lower() in ("true", "1") if isinstance(value, str) else bool(value)


def _unique(*parts: Json) -> str:
    """Thirteen characters; always the same ones, but not Azure's."""
    digest = hashlib.sha256("\0".join(text(part) for part in parts).encode()).digest()
    return base64.b32encode(digest).decode().lower()[:13]


FUNCTIONS: dict[str, Callable[..., Json]] = {
    "concat": lambda *parts: "".join(map(text, parts)),
    "format": _format,
    "split": lambda source, mark: source.split(mark),
    "empty": lambda container: container is None or len(container) == 0,
    "last": lambda parts: parts[-1] if parts else None,
    "take": lambda parts, count: parts[: max(count, 0)],
    "greater": lambda one, other: one > other,
    "max": lambda *numbers: max(numbers),
    "not": lambda value: not _bool(value),
    "uricomponent": lambda s: quote(s, safe=""),
    "uniquestring": _unique,
    "guid": lambda *parts: str(uuid.uuid5(GUIDS, "-".join(text(part) for part in parts))),
}


def apply(name: str, arguments: list[Json]) -> Json:
    """Return the value of a function, or raise TemplateError."""
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
