"""Read members of other programs' rows, and note which are read."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

Json = dict[str, Any]

_MEDIA = ("image", "images", "video", "videos", "audio", "audios")
_LEARNT = (  # true or 1: the turn is trained
    *("weight", "loss_weight", "loss", "train", "train_on_turn", "training", "trainable", "learn"),
)
_OF_ROWS = ("weight", "train", "trainable")  # `loss` of a whole row may be a measured one
_UNSURE = (  # ambiguous: programs disagree on the meaning
    *("mask", "masked", "mask_loss", "loss_mask", "ignore", "ignore_loss", "train_detail"),
)
_FLAGS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}
_MOST_LEVELS = 60  # of nesting in a member; the whole row stays below the service's 64
_HALF = re.compile("[\ud800-\udfff]")


class LeftOut(Exception):
    """Why a row cannot be converted."""


class Members:
    """A row, or a part of one, that notes which members were read."""

    def __init__(self, given: Mapping[str, Any], path: str = "") -> None:
        self._given, self._path = given, path
        self._read: set[str] = set()
        for name in _MEDIA:
            if given.get(name):
                raise LeftOut(f"it has `{name}`, and only text is trained")

    def peek(self, name: str) -> Any:  # noqa: ANN401 - any JSON
        """Return a member without marking it as read."""
        return self._given.get(name)

    def read(self, name: str) -> Any:  # noqa: ANN401 - any JSON
        """Return a member and mark it as read; None if it is missing."""
        self._read.add(name)
        return self._given.get(name)

    def either(self, *names: str) -> Any:  # noqa: ANN401 - any JSON
        """Return the value of the first member that is set; raise LeftOut if two differ."""
        found = [(name, value) for name in names if is_there(value := self.read(name))]
        if any(value != found[0][1] for _, value in found):
            raise LeftOut(f"`{found[0][0]}` and `{found[1][0]}` differ")
        return found[0][1] if found else None

    def text(self, *names: str) -> str:
        """Return a member that must be non-empty text."""
        text = self.either(*names)
        name = next((n for n in names if n in self._given), names[0])
        if text is None and self._given.get(name) == "":
            raise LeftOut(f"`{name}` is empty")
        if not isinstance(text, str):
            raise LeftOut(f"`{name}` is no text")
        if not text.strip():
            raise LeftOut(f"`{name}` is empty")
        return text

    def optional_text(self, *names: str) -> str:
        """Return a text member, or "" if it is missing or empty."""
        return self.text(*names) if self._has_text(names) else ""

    def _has_text(self, names: tuple[str, ...]) -> bool:
        value = self.either(*names)
        return is_there(value) and not (isinstance(value, str) and not value.strip())

    def names(self) -> Iterator[str]:
        """Yield the names of all members."""
        yield from self._given

    def unread(self) -> Iterator[str]:
        """Yield names of non-empty members that were not read."""
        for name, value in self._given.items():
            if name not in self._read and is_there(value):
                yield f"{self._path}{name}"


def is_there(value: object) -> bool:
    """Return whether a member has a value; false and 0 are values."""
    return value is not None and value not in ("", [], {})


def weight_of(turn: Members) -> int | None:
    """Return 1 or 0 if a turn says whether it is trained, else None."""
    for name in _UNSURE:
        if turn.peek(name) is not None:
            raise LeftOut(f"a turn has `{name}`; write `weight` 0 or 1 instead")
    said = {name: _flag(f"`{name}` of a turn", turn.read(name)) for name in _LEARNT}
    weights = {weight for weight in said.values() if weight is not None}
    if len(weights) > 1:
        raise LeftOut("members of a turn differ in whether it is learnt")
    return weights.pop() if weights else None


def require_learnt(row: Members) -> None:
    """Raise LeftOut for a row that is not to be learnt as a whole."""
    for name in _OF_ROWS:
        if _flag(f"`{name}` of the row", row.read(name)) == 0:
            raise LeftOut(f"its `{name}` is 0: the row is not to be learnt")


def flag_of(value: object) -> int | None:
    """Return 1 or 0 for a value that means true or false, else None."""
    return _FLAGS.get(str(value).strip().lower())


def number_of(value: object) -> float | None:
    """Return a number, also from text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def tools_of(row: Members) -> list[Json]:
    """Return the row's tools, from a list or its JSON text."""
    given = row.either("tools", "functions")
    if isinstance(given, str):
        given = parsed(given, "`tools`") if given.strip() else None
    if not is_there(given):
        return []
    if not isinstance(given, list) or not all(isinstance(tool, dict) for tool in given):
        raise LeftOut("`tools` is no list of objects")
    return [_tool(tool) for tool in given]


def parsed(text: str, what: str) -> Any:  # noqa: ANN401 - any JSON
    """Parse JSON text; raise LeftOut."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise LeftOut(f"{what} is no JSON") from None


def check_values(value: object, levels: int = _MOST_LEVELS) -> None:
    """Raise LeftOut for text, numbers and depth that the service rejects."""
    if isinstance(value, str):
        if "\0" in value:
            raise LeftOut("a text holds the character NUL")
        if not value.isascii() and _HALF.search(value):
            raise LeftOut("a text holds half of a surrogate pair")
    elif isinstance(value, float) and not math.isfinite(value):
        raise LeftOut("a number is NaN or infinite")
    elif isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise LeftOut("a number does not fit into 64 bits")
    elif isinstance(value, dict | list):
        if not levels:
            raise LeftOut("it is nested too deeply")
        inside = [*value, *value.values()] if isinstance(value, dict) else value
        for inner in inside:
            check_values(inner, levels - 1)


def _tool(given: Json) -> Json:
    tool = given if "function" in given else {"type": "function", "function": given}
    function = tool["function"]
    if not isinstance(function, dict) or not _is_name(function.get("name")):
        raise LeftOut("a tool has no `name`")
    return tool


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name != ""


def _flag(what: str, value: object) -> int | None:
    if value is None:
        return None
    found = flag_of(value)
    if found is None:
        raise LeftOut(f"{what} is {value!r:.20}, which is neither 0 nor 1")
    return found
