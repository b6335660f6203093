"""Refusals as rows of TOML: who asks for what, and what the service answers.

A group names a request and its valid body; each row changes it. A row is a list: an optional change
(a table of members), or another request, or a raw body; then "STATUS CODE PARAM" (PARAM is left out
where there is none); then parts of the message. `<name>` in a text stands for a named state of
`states.py`, `<x * 65>` for a text repeated.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
_EXPECTED = re.compile(r"\d{3} ")
_REQUEST = re.compile(r"[A-Z]+ /")
_NAMED = re.compile(r"<(\w[\w ]*?|.{1,5}(?= \*))(?: \* (\d+))?>")


@dataclass(frozen=True, kw_only=True)
class Group:
    """What the rows of a group have in common."""

    ask: str = ""  # "METHOD PATH"
    body: Any = None  # a valid one, or the name of a state
    key: str = "operator"  # the name of a state; "": no key is sent
    service: str = "usual"  # likewise
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One refused request."""

    says: str  # a sentence: what is refused
    group: Group
    ask: str
    change: Any  # members of the body, or the body itself as text
    expected: str
    parts: tuple[str, ...]  # of the message


@dataclass(frozen=True)
class Command:
    """One refused command line."""

    says: str
    words: str  # after `rekindle`
    code: int
    parts: tuple[str, ...]  # of what it says on stderr


def read_requests() -> list[Row]:
    """Return the requests of every file."""
    files = (tomllib.loads(path.read_text()) for path in sorted(FOLDER.glob("*.toml")))
    return [row for file in files for group in file.get("group", []) for row in _rows(**group)]


def read_commands() -> list[Command]:
    """Return the command lines, by their exit status."""
    codes = tomllib.loads((FOLDER / "commands.toml").read_text())["exit"]
    return [
        Command(says, words, int(code), tuple(parts))
        for code, refused in codes.items()
        for says, (words, *parts) in refused.items()
    ]


def _rows(refused: Mapping[str, list[Any]], **common: Any) -> Iterator[Row]:  # noqa: ANN401
    group = Group(**common)
    for says, cells in refused.items():
        at = next(n for n, cell in enumerate(cells) if _is(_EXPECTED, cell))
        ask = next((cell for cell in cells[:at] if _is(_REQUEST, cell)), group.ask)
        change = next((cell for cell in cells[:at] if cell != ask), None)
        yield Row(says, group, ask, change, cells[at], tuple(cells[at + 1 :]))


def _is(pattern: re.Pattern[str], cell: object) -> bool:
    return isinstance(cell, str) and pattern.match(cell) is not None


def apply_change(body: Any, change: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return the body with the members of the change in it, at any depth."""
    if not isinstance(body, dict) or not isinstance(change, dict):
        return body if change is None else change
    return body | {name: apply_change(body.get(name), inner) for name, inner in change.items()}


def fill_states(value: Any, states: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    """Return the value with every `<name>` in its texts replaced."""
    if isinstance(value, dict):
        return {
            fill_states(name, states): fill_states(inner, states) for name, inner in value.items()
        }
    if isinstance(value, list):
        return [fill_states(inner, states) for inner in value]
    if not isinstance(value, str):
        return value
    placeholder = _NAMED.fullmatch(value)
    if placeholder and not placeholder[2] and placeholder[1] in states:
        return states[placeholder[1]]
    return _NAMED.sub(lambda match: _repeated(match, states), value)


def _repeated(match: re.Match[str], states: Mapping[str, Any]) -> str:
    name, times = match[1], match[2]
    return name * int(times) if times else str(states[name])


def row_names(rows: Sequence[Row] | Sequence[Command]) -> list[str]:
    """Return the sentences; ValueError where one is there twice."""
    names = [row.says for row in rows]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"Rows of one name: {', '.join(sorted(twice))}")
    return names
