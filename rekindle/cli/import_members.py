"""Members of other programs' rows: what is read of them, and what is left behind."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

Json = dict[str, Any]

_NOTHING: tuple[Any, ...] = (None, "", [], {}, False)
_MEDIA = ("image", "images", "video", "videos", "audio", "audios")
_OPPOSITES = {"loss": True, "train": True, "train_on_turn": True}  # true: the turn is learnt
_UNSURE = ("mask", "masked", "train_detail")  # programs differ in what they mean by it


class LeftOut(Exception):
    """Why a row cannot be one of ours."""


class Members:
    """A row, or a part of one, that notes which of its members were read."""

    def __init__(self, given: Mapping[str, Any], path: str = "") -> None:
        self._given, self._path = given, path
        self._read: set[str] = set()
        for name in _MEDIA:
            if given.get(name):
                raise LeftOut(f"it has `{name}`, and only text is trained")

    def read(self, name: str) -> Any:  # noqa: ANN401 - any JSON
        """The member's value; None where it is not there."""
        self._read.add(name)
        return self._given.get(name)

    def text(self, name: str) -> str:
        """A member that must be a text with something in it."""
        text = self.read(name)
        if not isinstance(text, str):
            raise LeftOut(f"`{name}` is no text")
        if not text.strip():
            raise LeftOut(f"`{name}` is empty")
        return text

    def unread(self) -> Iterator[str]:
        """Names of members that hold something and were not read."""
        for name, value in self._given.items():
            if name not in self._read and value not in _NOTHING:
                yield f"{self._path}{name}"


def weight_of(turn: Members) -> int | None:
    """1 or 0 for a turn that says whether it is learnt; None for one that does not."""
    for name in _UNSURE:
        if turn.read(name) is not None:
            raise LeftOut(f"a turn has `{name}`; write `weight` 0 or 1 instead")
    said = {name: _flag(name, turn.read(name)) for name in ("weight", *_OPPOSITES)}
    weights = {weight for weight in said.values() if weight is not None}
    if len(weights) > 1:
        raise LeftOut("members of a turn differ in whether it is learnt")
    return weights.pop() if weights else None


def _flag(name: str, value: object) -> int | None:
    if value is None:
        return None
    known = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}
    found = known.get(str(value).strip().lower())
    if found is None:
        raise LeftOut(f"`{name}` of a turn is {value!r:.20}, which is neither 0 nor 1")
    return found


def tools_of(row: Members) -> list[Json]:
    """The tools that a row offers: a list, or JSON text of one."""
    given = row.read("tools")
    if isinstance(given, str) and given.strip():
        try:
            given = json.loads(given)
        except ValueError:
            raise LeftOut("`tools` is no JSON") from None
    if given in _NOTHING:
        return []
    if not isinstance(given, list) or not all(isinstance(tool, dict) for tool in given):
        raise LeftOut("`tools` is no list of objects")
    return [
        tool if "function" in tool else {"type": "function", "function": tool} for tool in given
    ]
