"""The file of `rekindle distil`: what a teacher is to answer, a prompt for each row or line.

A row of JSON is a chat that ends before its answer (`messages`), or has a `prompt` of text or
messages; what else it holds is the grader's to read. A line of a plain text is what a user says.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekindle.cli.distil.tally import Tally
from rekindle.cli.errors import ExitCode, Trouble
from rekindle.cli.files.json_rows import rows

Json = dict[str, Any]
ANSWER = "answer"  # member of a row: what a right answer comes to

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_OURS = ("messages", "prompt", "system")


@dataclass(frozen=True)
class Prompt:
    """Messages that end where the teacher is to answer."""

    line: int
    messages: list[Json]
    item: Json  # the row's other members

    @property
    def identity(self) -> str:
        """The same for the same messages."""
        return json.dumps(self.messages, sort_keys=True)


class Unfit(Exception):
    """Why a row is no prompt; the same words for the same reason, so that they can be counted."""


def prompts(path: Path, tally: Tally) -> Iterator[Prompt]:
    """Those of the file, each once; what is none is noted. Raises Trouble for a broken file."""
    seen: set[int] = set()  # hashes, as files may be large
    for line, item in _items(path):
        try:
            found = ([_user(item)], {}) if isinstance(item, str) else of_row(item)
            prompt = Prompt(line, *found)
        except Unfit as why:
            tally.leave_out(line, str(why))
            continue
        if (identity := hash(prompt.identity)) in seen:
            tally.leave_out(line, "it is there already")
            continue
        seen.add(identity)
        yield prompt


def require(path: Path) -> None:
    """Raise Trouble for what can be no file of prompts."""
    if not path.is_file():
        raise Trouble(f"{path} is no file.", "Give the file.", exit_code=ExitCode.USAGE)


def _items(path: Path) -> Iterator[tuple[int, Json | str]]:
    """Rows, or lines of a plain text."""
    if _is_json(path):
        yield from rows(path)
        return
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for number, text in enumerate(lines, 1):
                if said := text.strip():
                    yield number, said
    except UnicodeDecodeError as error:
        raise Trouble(f"{path} is not UTF-8: {error.reason}.", "Save it as UTF-8.") from error


def of_row(row: Mapping[str, Any]) -> tuple[list[Json], Json]:
    """The row's messages and its other members; raises Unfit."""
    if row.get("tools"):
        raise Unfit("it has `tools`, which a teacher is not told of")
    given = row.get("messages", row.get("prompt"))
    if isinstance(given, str) and "messages" not in row:
        given = [_user(given)] if given.strip() else []
    if not isinstance(given, list):
        raise Unfit("it has neither a list `messages` nor a `prompt`")
    if not given:
        raise Unfit("it is empty")
    for message in given:
        _check(message)
    if given[-1]["role"] == "assistant":
        raise Unfit("its last message is the assistant's: there is nothing to answer")
    if not is_text(given):
        raise Unfit("it holds half of a surrogate pair")
    told = row.get("system")
    system = [{"role": "system", "content": told}] if isinstance(told, str) and told.strip() else []
    return system + given, {name: value for name, value in row.items() if name not in _OURS}


def is_text(document: object) -> bool:
    """Whether all of it can be written: JSON can hold half of a surrogate pair, UTF-8 cannot."""
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _check(message: object) -> None:
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        raise Unfit("a message of it has no role that is known")
    if not isinstance(message.get("content"), str | list) or not message["content"]:
        raise Unfit("a message of it has no `content`")


def _user(text: str) -> Json:
    return {"role": "user", "content": text}


def _is_json(path: Path) -> bool:
    """By its first character that is no space; a `.txt` is never JSON."""
    if path.suffix == ".txt":
        return False
    with path.open("rb") as stream:
        begin = stream.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    return begin[:1] in (b"{", b"[")
