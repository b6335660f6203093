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
_PROMPT_MEMBERS = ("messages", "prompt", "system")


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


def read_prompts(path: Path, tally: DistilTally) -> Iterator[TeacherPrompt]:
    """Yield each distinct prompt; count other rows. Raises CliError for a broken file."""
    seen: set[int] = set()  # hashes, as files may be large
    for line, item in _read_items(path):
        try:
            parsed = ([_user_message(item)], {}) if isinstance(item, str) else parse_row(item)
            prompt = TeacherPrompt(line, *parsed)
        except UnusablePrompt as why:
            tally.skipped.add(line, str(why))
            continue
        if (identity := hash(prompt.identity)) in seen:
            tally.skipped.add(line, "it is a duplicate")
            continue
        seen.add(identity)
        yield prompt


def _read_items(path: Path) -> Iterator[tuple[int, Json | str]]:
    """Yield rows, or lines of plain text."""
    if _is_json(path):
        yield from read_rows(path)
        return
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for number, text in enumerate(lines, 1):
                if line := text.strip():
                    yield number, line
    except UnicodeDecodeError as error:
        raise CliError(f"{path} is not UTF-8: {error.reason}.", "Save it as UTF-8.") from error


def parse_row(row: Mapping[str, Any]) -> tuple[list[Json], Json]:
    """Return the row's messages and its other members; raise UnusablePrompt."""
    if row.get("tools"):
        raise UnusablePrompt("it has `tools`, which are not supported")
    messages = row.get("messages", row.get("prompt"))
    if isinstance(messages, str) and "messages" not in row:
        messages = [_user_message(messages)] if messages.strip() else []
    if not isinstance(messages, list):
        raise UnusablePrompt("it has neither a list `messages` nor a `prompt`")
    if not messages:
        raise UnusablePrompt("it is empty")
    for message in messages:
        _check_message(message)
    if messages[-1]["role"] == "assistant":
        raise UnusablePrompt("its last message is the assistant's")
    if not is_encodable(messages):
        raise UnusablePrompt("it has half of a surrogate pair")
    system_text = row.get("system")
    system = (
        [{"role": "system", "content": system_text}]
        if isinstance(system_text, str) and system_text.strip()
        else []
    )
    return system + messages, {
        name: value for name, value in row.items() if name not in _PROMPT_MEMBERS
    }


def is_encodable(document: object) -> bool:
    """Return whether UTF-8 can carry all text; JSON can hold half of a surrogate pair."""
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_message(message: object) -> None:
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        raise UnusablePrompt("a message has no known role")
    if not isinstance(message.get("content"), str | list) or not message["content"]:
        raise UnusablePrompt("a message has no `content`")


def _user_message(text: str) -> Json:
    return {"role": "user", "content": text}


def _is_json(path: Path) -> bool:
    """Return whether the file starts like JSON; a `.txt` file is never JSON."""
    if path.suffix == ".txt":
        return False
    with path.open("rb") as stream:
        begin = stream.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    return begin[:1] in (b"{", b"[")
