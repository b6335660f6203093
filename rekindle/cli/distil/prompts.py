"""Read the prompt file of `rekindle distil`: one prompt per row or line.

A JSON row has `messages` that end before the answer, or a `prompt` of text or messages; graders
read its other members. A line of plain text is a user message.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekindle.cli.distil.tally import DistilTally
from rekindle.cli.errors import CliError
from rekindle.cli.files.json_rows import read_rows

Json = dict[str, Any]
ANSWER = "answer"  # member of a row: the reference answer

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_OURS = ("messages", "prompt", "system")


@dataclass(frozen=True)
class TeacherPrompt:
    """Messages that end before the answer."""

    line: int
    messages: list[Json]
    item: Json  # the row's other members

    @property
    def identity(self) -> str:
        """Text that is equal for equal messages."""
        return json.dumps(self.messages, sort_keys=True)


class UnusablePrompt(Exception):
    """Why a row is no prompt; equal reasons have equal texts, so that they can be counted."""


def prompts(path: Path, tally: DistilTally) -> Iterator[TeacherPrompt]:
    """Yield each distinct prompt; count other rows. Raises CliError for a broken file."""
    seen: set[int] = set()  # hashes, as files may be large
    for line, item in _items(path):
        try:
            found = ([_user(item)], {}) if isinstance(item, str) else of_row(item)
            prompt = TeacherPrompt(line, *found)
        except UnusablePrompt as why:
            tally.skipped.add(line, str(why))
            continue
        if (identity := hash(prompt.identity)) in seen:
            tally.skipped.add(line, "it is a duplicate")
            continue
        seen.add(identity)
        yield prompt


def _items(path: Path) -> Iterator[tuple[int, Json | str]]:
    """Yield rows, or lines of plain text."""
    if _is_json(path):
        yield from read_rows(path)
        return
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for number, text in enumerate(lines, 1):
                if said := text.strip():
                    yield number, said
    except UnicodeDecodeError as error:
        raise CliError(f"{path} is not UTF-8: {error.reason}.", "Save it as UTF-8.") from error


def of_row(row: Mapping[str, Any]) -> tuple[list[Json], Json]:
    """Return the row's messages and its other members; raise UnusablePrompt."""
    if row.get("tools"):
        raise UnusablePrompt("it has `tools`, which are not supported")
    given = row.get("messages", row.get("prompt"))
    if isinstance(given, str) and "messages" not in row:
        given = [_user(given)] if given.strip() else []
    if not isinstance(given, list):
        raise UnusablePrompt("it has neither a list `messages` nor a `prompt`")
    if not given:
        raise UnusablePrompt("it is empty")
    for message in given:
        _check(message)
    if given[-1]["role"] == "assistant":
        raise UnusablePrompt("its last message is the assistant's")
    if not is_text(given):
        raise UnusablePrompt("it has half of a surrogate pair")
    told = row.get("system")
    system = [{"role": "system", "content": told}] if isinstance(told, str) and told.strip() else []
    return system + given, {name: value for name, value in row.items() if name not in _OURS}


def is_text(document: object) -> bool:
    """Return whether UTF-8 can carry all text; JSON can hold half of a surrogate pair."""
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _check(message: object) -> None:
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        raise UnusablePrompt("a message has no known role")
    if not isinstance(message.get("content"), str | list) or not message["content"]:
        raise UnusablePrompt("a message has no `content`")


def _user(text: str) -> Json:
    return {"role": "user", "content": text}


def _is_json(path: Path) -> bool:
    """Return whether the file starts like JSON; a `.txt` file is never JSON."""
    if path.suffix == ".txt":
        return False
    with path.open("rb") as stream:
        begin = stream.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    return begin[:1] in (b"{", b"[")
