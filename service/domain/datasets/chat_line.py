"""Check one row of OpenAI's supervised chat format."""

from collections.abc import Iterator
from typing import Any

from contract.choices import Format
from service.domain.datasets import message
from service.domain.datasets.json_line import DatasetProblem
from service.domain.datasets.message import PLAIN, Message
from service.domain.datasets.row import DatasetRow
from service.domain.datasets.tools import check_style, check_tools, may_call

_OTHER_FORMATS = {  # members of rows in formats that are not ours
    "chosen": "it has `chosen` (TRL): rename it to `preferred_output`, `rejected` to "
    "`non_preferred_output`, and put the prompt's messages into `input`",
    "prompt": "it has `prompt`: write it as a user's message and the completion as an assistant's",
    "conversations": "it has `conversations` (ShareGPT): rename it, `from` to `role` and `value` "
    "to `content`",
    "instruction": "it has `instruction` (Alpaca): write it as a user's message and the output as "
    "an assistant's",
    "text": "it has `text`: write it as messages, or add its `label` to learn a classification",
}
_SEND_CHAT = "`messages` must be a list of at least one message"
_USUAL_ROLES = ["user", "assistant"]


def check(row: dict[str, Any], line: bytes) -> DatasetRow | DatasetProblem:
    """Return what the row holds, or the first problem."""
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages:
        return DatasetProblem("missing_messages_list", _no_messages(row))
    if problem := check_tools(row):
        return problem
    characters = message.check_all(messages)
    if isinstance(characters, DatasetProblem):
        return characters
    if problem := message.check_learnt(messages):
        return problem
    roles = [m["role"] for m in messages]
    is_usual = len(row) == 1 and roles == _USUAL_ROLES and messages[1].keys() == PLAIN
    tools = row if not is_usual and may_call(line) else None
    if tools and (problem := check_style(tools, messages)):
        return problem
    notes = tuple(_notes(line, tools, messages, roles))
    return DatasetRow(Format.CHAT, characters, characters, notes)


def _no_messages(row: dict[str, Any]) -> str:
    for member, hint in _OTHER_FORMATS.items():
        if member in row:
            return f"{_SEND_CHAT}; {hint}"
    return _SEND_CHAT


def _notes(
    line: bytes, tools: dict[str, Any] | None, messages: list[Message], roles: list[str]
) -> Iterator[DatasetProblem]:
    """Yield warnings about a row; most rows are one question with its answer and have none."""
    if roles != _USUAL_ROLES:
        yield from message.odd_roles(roles)
    yield from message.odd_messages(line, tools, message.with_names({"": messages}))
