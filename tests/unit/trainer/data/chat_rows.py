"""Rows of chats, good and bad, and what the validator says of files of them."""

import json
from typing import Any

import pytest

from service.domain.datasets.dataset import DatasetLimits, DatasetSummary, DatasetValidator
from service.domain.errors import InvalidFile

USER = {"role": "user", "content": "2 + 2?"}
ASSISTANT = {"role": "assistant", "content": "4"}
CHAT = {"messages": [USER, ASSISTANT]}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}

TOOL = {
    "type": "function",
    "function": {"name": "add", "description": "Adds.", "parameters": {}, "strict": True},
}
NOT_TOOLS: tuple[Any, ...] = (
    *("add", None, [], {}, {"name": "add"}, {"type": "function"}),
    *({"function": {}}, {"function": "add"}, {"function": {"name": ""}}, {"function": {"name": 7}}),
)


def jsonl(*rows: object) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def verdict(data: bytes, size: int = 1 << 16, **limits: int) -> DatasetSummary:
    validator = DatasetValidator(DatasetLimits(**limits))
    for start in range(0, len(data), size):
        validator.feed(data[start : start + size])
    return validator.finish()


def refused(data: bytes, **limits: int) -> InvalidFile:
    with pytest.raises(InvalidFile) as caught:
        verdict(data, **limits)
    assert (caught.value.code, caught.value.param) == ("invalid_file_format", "file")
    return caught.value


def refusal(data: bytes, **limits: int) -> str:
    return refused(data, **limits).message


def codes(summary: DatasetSummary) -> list[str]:
    return [warning.code for warning in summary.warnings]


def rows(count: int) -> list[dict[str, Any]]:
    """Good rows that all differ."""
    return [{"messages": [USER | {"content": f"{i} + 2?"}, ASSISTANT]} for i in range(count)]


def message(**members: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever JSON holds
    return {"messages": [members, ASSISTANT]}


def message_from(role: str) -> dict[str, Any]:
    return message(role=role, content="2 + 2?")
