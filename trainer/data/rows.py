"""The rows of a JSONL file, read one by one through an index of their offsets.

A row is a chat; or a preference or a ranking: a prompt and several answers, each of which makes a
chat with it, the best first.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import TemplateError

from trainer.hopeless import Hopeless

Chat = dict[str, Any]  # `messages`, and perhaps `tools`
# OpenAI's names, and those of its older specification.
PREFERRED = ("preferred_output", "preferred_completion")
OTHER = ("non_preferred_output", "non_preferred_completion")
RANKED = "ranked_outputs"  # ours
_PART = 1 << 20  # bytes read at once


class Rows:
    """A JSONL file of which only the offsets are held in memory. Blank lines are no rows."""

    def __init__(self, path: Path, chats: Callable[[Any], tuple[Chat, ...]]) -> None:
        """``chats`` makes them of a parsed row, or raises ValueError that says what it lacks."""
        self._path, self._chats = path, chats
        starts, position = [], 0
        with path.open("rb") as lines:
            for line in lines:
                if line.strip():
                    starts.append(position)
                position += len(line)
        if not starts:
            raise Hopeless(f"{path.name} holds no rows; upload a file with at least one chat")
        self._starts = np.array(starts, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, row: int) -> tuple[Chat, ...]:
        """What the row holds, or Hopeless that names the line that is broken."""
        with self._path.open("rb") as lines:
            lines.seek(int(self._starts[row]))
            line = lines.readline()
        with self.named(row):
            return self._chats(_parsed(line))

    @contextmanager
    def named(self, row: int) -> Iterator[None]:
        """Raise Hopeless that names the row's line for whatever its content makes go wrong."""
        try:
            yield
        except (Hopeless, OSError, MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit):
            raise  # said already, or no fault of the row
        except BaseException as error:  # a panic of the tokenizer's Rust is no Exception
            raise Hopeless(f"{self.place(row)}: {_said(error)}") from error

    def place(self, row: int) -> str:
        """File and line of the row; blank lines count, as an editor counts them."""
        left, number = int(self._starts[row]), 1
        with self._path.open("rb") as file:
            while left and (part := file.read(min(left, _PART))):
                left, number = left - len(part), number + part.count(b"\n")
        return f"{self._path.name}, line {number}"


def chat(row: Any) -> tuple[Chat]:  # noqa: ANN401 - what json.loads gives
    """The chat that the row is."""
    if not isinstance(row, dict) or not isinstance(row.get("messages"), list):
        raise ValueError("needs a list `messages`")
    return (row,)


def answers(row: Any) -> tuple[Chat, ...]:  # noqa: ANN401
    """The prompt with each of its answers, best first; only the answers are trained."""
    asked = row.get("input") if isinstance(row, dict) else None
    if not isinstance(asked, dict) or not isinstance(asked.get("messages"), list):
        raise ValueError("needs `input` with a list `messages`")
    prompt = [m | {"weight": 0} if m["role"] == "assistant" else m for m in asked["messages"]]
    return tuple(asked | {"messages": prompt + answer} for answer in _ranked(row))


def _said(error: BaseException) -> str:
    """What it says; of errors that were not made for people, their kind as well."""
    if isinstance(error, UnicodeEncodeError):  # its own words are full of code points
        bad = error.object[error.start : error.start + 1]
        return f"{bad!r} is half a surrogate pair and no text; write the whole character"
    plain = type(error) is ValueError or isinstance(error, TemplateError)
    return str(error) if plain else f"{type(error).__name__}: {error}"


def _parsed(line: bytes) -> Any:  # noqa: ANN401
    try:
        return json.loads(line.rstrip())
    except ValueError as error:
        at = f"{error.msg} at column {error.colno}" if isinstance(error, JSONDecodeError) else error
        raise ValueError(f"not JSON ({at})") from error


def _ranked(row: dict[str, Any]) -> list[list[dict[str, Any]]]:
    ranked = row.get(RANKED)
    if ranked is None:
        return [_answer(row, PREFERRED), _answer(row, OTHER)]
    if not isinstance(ranked, list) or not all(isinstance(answer, list) for answer in ranked):
        raise ValueError(f"needs a list of lists `{RANKED}`")
    return ranked


def _answer(row: dict[str, Any], names: tuple[str, ...]) -> list[dict[str, Any]]:
    found = next((row[name] for name in names if name in row), None)
    if not isinstance(found, list):
        raise ValueError(f"needs a list `{names[0]}`")
    return found
