"""What the operators and functions of Resource Graph's query language do with values."""

import json
import math
import re
from collections.abc import Callable
from typing import Any

from emulator.market.kql_tokens import QueryError

Value = Any  # JSON


def text(value: Value) -> str:
    """A value as a string: null is empty, what is dynamic is JSON."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def number(value: Value) -> float | None:
    """A value as a number, or null."""
    if isinstance(value, bool):
        return float(value)
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def whole(value: Value) -> int | None:
    """A value as an integer, or null."""
    found = number(value)
    return None if found is None else int(found)


def order(value: Value) -> tuple[int, float, str]:
    """A key to sort values of any kind by: null, numbers, then strings."""
    if value is None:
        return (0, 0.0, "")
    if isinstance(value, (bool, int, float)):
        return (1, float(value), "")
    return (2, 0.0, text(value))


def same(left: Value, right: Value) -> bool:
    """The == of the language: it knows case."""
    if isinstance(left, (int, float)) or isinstance(right, (int, float)):
        return number(left) is not None and number(left) == number(right)
    return left is not None and right is not None and text(left) == text(right)


def alike(left: Value, right: Value) -> bool:
    """The =~ of the language: it knows no case."""
    return left is not None and text(left).lower() == text(right).lower()


def has(left: Value, right: Value) -> bool:
    """Whether a whole term is there, in any case."""
    term = re.escape(text(right))
    return re.search(rf"(?<![^\W_]){term}(?![^\W_])", text(left), re.IGNORECASE) is not None


def _within(test: Callable[[str, str], bool]) -> Callable[[Value, Value], bool]:
    return lambda left, right: test(text(left).lower(), text(right).lower())


def _not(test: Callable[[Value, Value], bool]) -> Callable[[Value, Value], bool]:
    return lambda left, right: not test(left, right)


def _ordered(test: Callable[[Value, Value], bool]) -> Callable[[Value, Value], bool]:
    return lambda left, right: None not in (left, right) and test(order(left), order(right))


CONTAINS = _within(lambda left, right: right in left)
STARTS = _within(str.startswith)
ENDS = _within(str.endswith)
COMPARISONS: dict[str, Callable[[Value, Value], bool]] = {
    "==": same,
    "!=": _not(same),
    "=~": alike,
    "!~": _not(alike),
    "<": _ordered(lambda left, right: left < right),
    "<=": _ordered(lambda left, right: left <= right),
    ">": _ordered(lambda left, right: left > right),
    ">=": _ordered(lambda left, right: left >= right),
    "contains": CONTAINS,
    "!contains": _not(CONTAINS),
    "startswith": STARTS,
    "!startswith": _not(STARTS),
    "endswith": ENDS,
    "!endswith": _not(ENDS),
    "has": has,
    "!has": _not(has),
}
MEMBERSHIP = {
    "in": (same, True),
    "!in": (same, False),
    "in~": (alike, True),
    "!in~": (alike, False),
}


def dynamic(value: Value) -> Value:
    """A string as the JSON that it holds; anything else as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def call(name: str, arguments: list[Value]) -> Value:
    """What a function makes of its arguments."""
    function, count = FUNCTIONS[name]
    if count is not None and len(arguments) != count:
        message = f"{name}(): function expects {count} argument(s)."
        raise QueryError({"code": "ArgumentsMismatch", "message": message})
    return function(*arguments)


FUNCTIONS: dict[str, tuple[Callable[..., Value], int | None]] = {
    "tostring": (text, 1),
    "todouble": (number, 1),
    "toreal": (number, 1),
    "toint": (whole, 1),
    "tolong": (whole, 1),
    "tolower": (lambda value: text(value).lower(), 1),
    "toupper": (lambda value: text(value).upper(), 1),
    "todynamic": (dynamic, 1),
    "parse_json": (dynamic, 1),
    "isempty": (lambda value: text(value) == "", 1),
    "isnotempty": (lambda value: text(value) != "", 1),
    "isnull": (lambda value: value is None, 1),
    "isnotnull": (lambda value: value is not None, 1),
    "not": (lambda value: not value, 1),
    "array_length": (lambda value: len(value) if isinstance(value, list) else None, 1),
    "strcat": (lambda *values: "".join(map(text, values)), None),
    "coalesce": (lambda *values: next((v for v in values if text(v)), None), None),
    "iff": (lambda test, then, other: then if test else other, 3),
    "iif": (lambda test, then, other: then if test else other, 3),
}
