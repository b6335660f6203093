"""Check one row of OpenAI's reinforcement format: messages that the model is to answer.

The grader reads the other members of a row as `{{item.name}}`.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from contract.choices import Format
from service.domain.datasets import message
from service.domain.datasets.json_line import DatasetProblem
from service.domain.datasets.message import ROLES, Message
from service.domain.datasets.row import DatasetRow
from service.domain.datasets.tools import check_style, check_tools, may_call

MOST_MEMBERS: Final = 1000

_NAME = re.compile(r"\w{1,256}\Z", re.ASCII)
_MODEL_MEMBERS = ("messages", "tools")
_ANSWERED = "last_message_not_assistant"  # of chats: here it is as it should be


def is_prompt(row: dict[str, Any]) -> bool:
    """Return whether the row ends with a message to be answered."""
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages or not isinstance(messages[-1], dict):
        return False
    role = messages[-1].get("role")
    return role != "assistant" and role in ROLES


def check(row: dict[str, Any], line: bytes) -> DatasetRow | DatasetProblem:
    """Return what the row holds, or the first problem."""
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages:
        return DatasetProblem(
            "missing_messages_list", "`messages` must be a list of at least one message"
        )
    if len(row) > MOST_MEMBERS:
        reason = f"it has {len(row)} members, and {MOST_MEMBERS} are the most: leave some out"
        return DatasetProblem("too_many_members", reason)
    if problem := check_tools(row):
        return problem
    characters = message.check_all(messages)
    if isinstance(characters, DatasetProblem):
        return characters
    tools = row if may_call(line) else None
    if tools and (problem := check_style(tools, messages)):
        return problem
    notes = tuple(_notes(line, tools, messages))
    return DatasetRow(Format.PROMPT, characters, characters, notes, _members(row))


def _members(row: dict[str, Any]) -> frozenset[str]:
    """Return the grader's members that hold something and that a template can name."""
    names = (name for name, value in row.items() if value is not None)
    return frozenset(name for name in names if name not in _MODEL_MEMBERS and _NAME.match(name))


def _notes(
    line: bytes, tools: dict[str, Any] | None, messages: list[Message]
) -> Iterator[DatasetProblem]:
    odd = message.odd_roles([m["role"] for m in messages])
    yield from (note for note in odd if note.code != _ANSWERED)
    yield from message.odd_messages(line, tools, message.with_names({"": messages}))
