"""Parse JSON strictly, so that every program reads it alike.

Names occur once in an object, numbers are in range, and strings are valid text. Other parsers
disagree about the rest, PostgreSQL does not store it, and tokenizers fail on it.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn

MOST_LEVELS: Final = 64  # of objects and lists in one another
# Brackets and commas, in strings too: counting them is a thousand times cheaper than reading them,
# which nothing can interrupt. A row of 16 MiB that is text has far fewer.
MOST_OPENED: Final = 500_000
MOST_VALUES: Final = 2_000_000

_SPACE = " \t\n\r"
_BAD_ESCAPE = re.compile(  # NUL, half a pair, or an escaped backslash that may hide either
    r"\\(?:u0000|\\u|u[dD](?:[89abAB]..(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB]..\\u[dD])[c-fC-F]))"
)
_HALF = re.compile("[\ud800-\udfff]")
_TOO_DEEP = f"the JSON is nested deeper than {MOST_LEVELS} levels; flatten it"
_TOO_MUCH = f"it holds more than {MOST_OPENED} brackets or {MOST_VALUES} commas; split it"
_LONGEST_INTEGER = 20  # characters of the longest that fits into 64 bits

Path = tuple[str | int, ...]  # names of members, numbers of items


class UnstorableText(ValueError):
    """A string that holds NUL or half of a surrogate pair, and its position."""

    def __init__(self, path: Path, why: str) -> None:
        self.path = path
        super().__init__(f"{_format_path(path)}: {why}" if path else why)


def loads(text: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Parse JSON text without raw surrogates; raises ValueError that says what is wrong with it."""
    opened = text.count("{") + text.count("[")
    if opened > MOST_OPENED or text.count(",") > MOST_VALUES:
        raise ValueError(_TOO_MUCH)
    value = _parse(text)
    if opened > MOST_LEVELS:
        _check_depth(value)
    if "\\" in text and _BAD_ESCAPE.search(text):
        _check_text(value)
    return value


def _check_text(value: object) -> None:
    """Raise UnstorableText for the first string that cannot be stored."""
    for path, text in _strings(value, ()):
        if why := _flaw(text):
            raise UnstorableText(path, why)


def _parse(text: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    try:
        value, end = _SCAN(text, 0)
        if end == len(text) or not text[end:].strip(_SPACE):
            return value
    except StopIteration:
        pass
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    return _DECODER.decode(text)  # it strips white space, and explains what is wrong


def _check_depth(value: object) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MOST_LEVELS:
            raise ValueError(_TOO_DEEP)
        level = [inner for outer in level for inner in _containers(outer)]


def _containers(value: object) -> list[object]:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [inner for inner in inside if isinstance(inner, dict | list)]


def _strings(value: object, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield every string with its position; names of members are strings, too."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield (*path, name), name
            yield from _strings(inner, (*path, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value, 1):
            yield from _strings(inner, (*path, number))


def _flaw(text: str) -> str | None:
    if "\0" in text:
        return "it holds the character NUL (\\u0000), which cannot be stored; leave it out"
    if not text.isascii() and (half := _HALF.search(text)):
        return f"\\u{ord(half.group()):04x} is half of a surrogate pair; write the whole character"
    return None


def _format_path(path: Path) -> str:
    parts = (f"item {part}" if isinstance(part, int) else f"{part!a:.40}"[1:-1] for part in path)
    return ", ".join(parts)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        _check_names(pairs)
    return members


def _check_names(pairs: list[tuple[str, Any]]) -> None:
    first: dict[str, Any] = {}
    for name, value in pairs:
        if first.setdefault(name, value) != value:
            raise ValueError(f"{name!a:.40} is given twice in one object; leave one out")


def _integer(text: str) -> int:
    if len(text) > _LONGEST_INTEGER or not -(2**63) <= (value := int(text)) < 2**64:
        raise ValueError(f"{text:.24} does not fit into 64 bits; write it as a string")
    return value


def _float(text: str) -> float:
    value = float(text)
    is_lost = value == 0 and not set(text.lower().partition("e")[0]).isdisjoint("123456789")
    if math.isinf(value) or is_lost:
        raise ValueError(f"{text:.24} is out of the range of numbers; write it as a string")
    return value


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value; use null or leave it out")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant
)
_SCAN = _DECODER.scan_once  # type: ignore[attr-defined] # typeshed does not list it
