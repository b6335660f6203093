"""Check one row to classify, a format of ours: a text or a chat, and its label."""

from typing import Any, Final

from contract.choices import Format
from service.domain.datasets import message
from service.domain.datasets.json_line import DatasetProblem
from service.domain.datasets.row import DatasetRow
from service.domain.datasets.tools import check_style, check_tools, may_call

MOST_LABELS: Final = 1000
LONGEST_LABEL: Final = 100  # characters

_MEMBERS = frozenset({"messages", "text", "label", "tools", "functions"})


def is_labelled(row: dict[str, Any]) -> bool:
    """Return whether the row is meant as a labelled row, valid or not.

    Chats may hold anything beside their messages, and prompts what their grader reads: a row of
    messages with unknown members is one of those.
    """
    if "messages" not in row:
        return "text" in row and "label" in row
    return isinstance(row.get("label"), str) and row.keys() <= _MEMBERS


def may_be_labelled(row: dict[str, Any]) -> bool:
    """Return whether the row counts as a labelled one among labelled rows."""
    return row.keys() <= _MEMBERS


def check(row: dict[str, Any], line: bytes) -> DatasetRow | DatasetProblem:
    """Return what the row holds, or the first problem."""
    label = row.get("label")
    if not isinstance(label, str) or not label.strip() or not label.isprintable():
        return DatasetProblem(
            "missing_label", "`label` must be the name of the row's class, a string"
        )
    if len(label) > LONGEST_LABEL:
        reason = (
            f"`label` has {len(label)} characters, and {LONGEST_LABEL} are the most: shorten it"
        )
        return DatasetProblem("label_too_long", reason)
    if "text" in row and "messages" in row:
        return DatasetProblem("mixed_formats", "it has `text` and `messages`: leave one out")
    messages = _messages(row)
    if isinstance(messages, DatasetProblem):
        return messages
    characters = message.check_all(messages, "message" if "messages" in row else "text, as message")
    if isinstance(characters, DatasetProblem):
        return characters
    tools = row if may_call(line) else None
    if tools and (problem := check_style(tools, messages)):
        return problem
    notes = tuple(message.odd_messages(line, tools, message.with_names({"": messages})))
    return DatasetRow(Format.LABELLED, characters, characters, notes, label=label)


def _messages(row: dict[str, Any]) -> list[Any] | DatasetProblem:
    if "text" in row:
        text = row["text"]
        if not isinstance(text, str) or not text.strip():
            return DatasetProblem("missing_text", "`text` must be a string that is not empty")
        return [{"role": "user", "content": text}]  # judged as one
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages:
        reason = "`text` is needed, or `messages`, a list of at least one message"
        return DatasetProblem("missing_text", reason)
    return check_tools(row) or messages
