"""Shapes (names and types of the members of a JSON value), and their differences."""

from collections.abc import Iterator
from typing import Any

OPEN = ("tags", "userAssignedIdentities", "outputs", "parameters")  # members that users name
TYPES = {bool: "boolean", int: "number", float: "number", str: "string"}


def shape(value: Any, deep: int) -> Any:  # noqa: ANN401 - JSON
    """Return the types of a value up to ``deep`` levels, without nulls."""
    if isinstance(value, dict):
        members = {k: {} if k in OPEN else shape(v, deep - 1) for k, v in value.items()}
        return {k: v for k, v in members.items() if v is not None} if deep else {}
    if isinstance(value, list):
        rows: list[Any] = []
        for row in value:
            rows = [_merged(rows[0], shape(row, deep - 1))] if rows else [shape(row, deep - 1)]
        return rows
    return TYPES.get(type(value))


def lacking(recorded: Any, replayed: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401 - shapes
    """Yield what the other shape lacks of the recorded one, or has with another type."""
    if type(recorded) is not type(replayed):
        yield f"type of {path}: {_word(recorded)}, not {_word(replayed)}"
    elif isinstance(recorded, dict):
        for name, inner in recorded.items():
            member_path = f"{path}.{name}" if path else name
            if name not in replayed:
                yield f"no member {member_path}"
            else:
                yield from lacking(inner, replayed[name], member_path)
    elif isinstance(recorded, list):
        if recorded and replayed:
            yield from lacking(recorded[0], replayed[0], f"{path}[]")
        elif recorded:
            yield f"empty {path}"
    elif recorded != replayed:
        yield f"type of {path}: {recorded}, not {replayed}"


def _merged(first: Any, second: Any) -> Any:  # noqa: ANN401 - shapes
    if isinstance(first, dict) and isinstance(second, dict):
        return first | {k: _merged(first[k], v) if k in first else v for k, v in second.items()}
    if isinstance(first, list) and isinstance(second, list) and first and second:
        return [_merged(first[0], second[0])]
    return first or second


def _word(value: Any) -> str:  # noqa: ANN401 - a shape
    if isinstance(value, dict | list):
        return "object" if isinstance(value, dict) else "list"
    return str(value)
