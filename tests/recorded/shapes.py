"""Shapes (names and types of the members of a JSON value), and their differences."""

from collections.abc import Iterator
from typing import Any

OPEN = ("tags", "userAssignedIdentities", "outputs", "parameters")  # members that users name
TYPES = {bool: "boolean", int: "number", float: "number", str: "string"}


def shape(value: Any, deep: int) -> Any:  # noqa: ANN401 - JSON
    """Return the types of a value up to ``deep`` levels, without nulls."""
    if isinstance(value, dict):
        found = {k: {} if k in OPEN else shape(v, deep - 1) for k, v in value.items()}
        return {k: v for k, v in found.items() if v is not None} if deep else {}
    if isinstance(value, list):
        rows: list[Any] = []
        for row in value:
            rows = [_merged(rows[0], shape(row, deep - 1))] if rows else [shape(row, deep - 1)]
        return rows
    return TYPES.get(type(value))


def lacking(recorded: Any, seen: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401 - shapes
    """Yield what the other shape lacks of the recorded one, or has with another type."""
    if type(recorded) is not type(seen):
        yield f"type of {path}: {_word(recorded)}, not {_word(seen)}"
    elif isinstance(recorded, dict):
        for name, inner in recorded.items():
            here = f"{path}.{name}" if path else name
            if name not in seen:
                yield f"no member {here}"
            else:
                yield from lacking(inner, seen[name], here)
    elif isinstance(recorded, list):
        if recorded and seen:
            yield from lacking(recorded[0], seen[0], f"{path}[]")
        elif recorded:
            yield f"empty {path}"
    elif recorded != seen:
        yield f"type of {path}: {recorded}, not {seen}"


def _merged(one: Any, other: Any) -> Any:  # noqa: ANN401 - shapes
    if isinstance(one, dict) and isinstance(other, dict):
        return one | {k: _merged(one[k], v) if k in one else v for k, v in other.items()}
    if isinstance(one, list) and isinstance(other, list) and one and other:
        return [_merged(one[0], other[0])]
    return one or other


def _word(found: Any) -> str:  # noqa: ANN401 - a shape
    if isinstance(found, dict | list):
        return "object" if isinstance(found, dict) else "list"
    return str(found)
