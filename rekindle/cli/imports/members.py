"""Read members of other programs' rows, and note which are read."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

Json = dict[str, Any]

_MEDIA = ("image", "images", "video", "videos", "audio", "audios")
_WEIGHT_NAMES = (  # true or 1: the turn is trained
    *("weight", "loss_weight", "loss", "train", "train_on_turn", "training", "trainable", "learn"),
)
_ROW_WEIGHT_NAMES = ("weight", "train", "trainable")  # `loss` of a whole row may be a measured one
_AMBIGUOUS_NAMES = (  # ambiguous: programs disagree on the meaning
    *("mask", "masked", "mask_loss", "loss_mask", "ignore", "ignore_loss", "train_detail"),
)
_FLAGS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}
_MAX_DEPTH = 60  # of nesting in a member; the whole row stays below the service's 64
_SURROGATE = re.compile("[\ud800-\udfff]")


class RowSkipped(Exception):
    """Why a row cannot be converted."""


class RowMembers:
    """A row, or a part of one, that notes which members were read."""

    def __init__(self, values: Mapping[str, Any], path: str = "") -> None:
        self._values, self._path = values, path
        self._read: set[str] = set()
        for name in _MEDIA:
            if values.get(name):
                raise RowSkipped(f"it has `{name}`, and only text is trained")

    def peek(self, name: str) -> Any:  # noqa: ANN401 - any JSON
        """Return a member without marking it as read."""
        return self._values.get(name)

    def read(self, name: str) -> Any:  # noqa: ANN401 - any JSON
        """Return a member and mark it as read; None if it is missing."""
        self._read.add(name)
        return self._values.get(name)

    def read_first(self, *names: str) -> Any:  # noqa: ANN401 - any JSON
        """Return the value of the first member that is set; raise RowSkipped if two differ."""
        values = [(name, value) for name in names if has_value(value := self.read(name))]
        if any(value != values[0][1] for _, value in values):
            raise RowSkipped(f"`{values[0][0]}` and `{values[1][0]}` differ")
        return values[0][1] if values else None

    def read_text(self, *names: str) -> str:
        """Return a member that must be non-empty text."""
        text = self.read_first(*names)
        name = next((n for n in names if n in self._values), names[0])
        if text is None and self._values.get(name) == "":
            raise RowSkipped(f"`{name}` is empty")
        if not isinstance(text, str):
            raise RowSkipped(f"`{name}` is no text")
        if not text.strip():
            raise RowSkipped(f"`{name}` is empty")
        return text

    def read_optional_text(self, *names: str) -> str:
        """Return a text member, or "" if it is missing or empty."""
        return self.read_text(*names) if self._has_text(names) else ""

    def _has_text(self, names: tuple[str, ...]) -> bool:
        value = self.read_first(*names)
        return has_value(value) and not (isinstance(value, str) and not value.strip())

    def names(self) -> Iterator[str]:
        """Yield the names of all members."""
        yield from self._values

    def unread_names(self) -> Iterator[str]:
        """Yield names of non-empty members that were not read."""
        for name, value in self._values.items():
            if name not in self._read and has_value(value):
                yield f"{self._path}{name}"


def has_value(value: object) -> bool:
    """Return whether a member has a value; false and 0 are values."""
    return value is not None and value not in ("", [], {})


def read_weight(turn: RowMembers) -> int | None:
    """Return 1 or 0 if a turn says whether it is trained, else None."""
    for name in _AMBIGUOUS_NAMES:
        if turn.peek(name) is not None:
            raise RowSkipped(f"a turn has `{name}`; write `weight` 0 or 1 instead")
    flags = {name: _require_flag(f"`{name}` of a turn", turn.read(name)) for name in _WEIGHT_NAMES}
    weights = {weight for weight in flags.values() if weight is not None}
    if len(weights) > 1:
        raise RowSkipped("members of a turn differ in whether it is learnt")
    return weights.pop() if weights else None


def require_trained(row: RowMembers) -> None:
    """Raise RowSkipped for a row that is not to be learnt as a whole."""
    for name in _ROW_WEIGHT_NAMES:
        if _require_flag(f"`{name}` of the row", row.read(name)) == 0:
            raise RowSkipped(f"its `{name}` is 0: the row is not to be learnt")


def parse_flag(value: object) -> int | None:
    """Return 1 or 0 for a value that means true or false, else None."""
    return _FLAGS.get(str(value).strip().lower())


def parse_number(value: object) -> float | None:
    """Return a number, also from text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def read_tools(row: RowMembers) -> list[Json]:
    """Return the row's tools, from a list or its JSON text."""
    tools = row.read_first("tools", "functions")
    if isinstance(tools, str):
        tools = parse_json(tools, "`tools`") if tools.strip() else None
    if not has_value(tools):
        return []
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise RowSkipped("`tools` is no list of objects")
    return [_parse_tool(tool) for tool in tools]


def parse_json(text: str, label: str) -> Any:  # noqa: ANN401 - any JSON
    """Parse JSON text; raise RowSkipped."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise RowSkipped(f"{label} is no JSON") from None


def check_values(value: object, levels: int = _MAX_DEPTH) -> None:
    """Raise RowSkipped for text, numbers and depth that the service rejects."""
    if isinstance(value, str):
        if "\0" in value:
            raise RowSkipped("a text holds the character NUL")
        if not value.isascii() and _SURROGATE.search(value):
            raise RowSkipped("a text holds half of a surrogate pair")
    elif isinstance(value, float) and not math.isfinite(value):
        raise RowSkipped("a number is NaN or infinite")
    elif isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise RowSkipped("a number does not fit into 64 bits")
    elif isinstance(value, dict | list):
        if not levels:
            raise RowSkipped("it is nested too deeply")
        inside = [*value, *value.values()] if isinstance(value, dict) else value
        for inner in inside:
            check_values(inner, levels - 1)


def _parse_tool(value: Json) -> Json:
    tool = value if "function" in value else {"type": "function", "function": value}
    function = tool["function"]
    if not isinstance(function, dict) or not _is_name(function.get("name")):
        raise RowSkipped("a tool has no `name`")
    return tool


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name != ""


def _require_flag(label: str, value: object) -> int | None:
    if value is None:
        return None
    flag = parse_flag(value)
    if flag is None:
        raise RowSkipped(f"{label} is {value!r:.20}, which is neither 0 nor 1")
    return flag
