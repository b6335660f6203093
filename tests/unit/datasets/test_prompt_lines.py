"""Rows of prompts: messages to be answered, judged with a chat's care, and what graders read."""

from typing import Any

import pytest

from contract.choices import Format
from tests.unit.trainer.data.chat_rows import (
    ASSISTANT,
    CALL,
    CHAT,
    TOOL,
    USER,
    codes,
    jsonl,
    refusal,
    verdict,
)

PROMPT: dict[str, Any] = {"messages": [USER], "answer": "4", "level": 1}


def prompts(count: int, **more: object) -> list[dict[str, Any]]:
    """Good rows that all differ."""
    return [PROMPT | {"messages": [USER | {"content": f"{i} + 2?"}]} | more for i in range(count)]


def test_rows_that_end_with_a_question_are_prompts() -> None:
    found = verdict(jsonl(*prompts(10)))

    assert (found.format, found.examples, codes(found)) == (Format.PROMPT, 10, [])
    assert found.characters == 10 * len("0 + 2?")
    assert verdict(jsonl(CHAT)).format is Format.CHAT


@pytest.mark.parametrize("role", ["user", "tool", "system", "developer"])
def test_whoever_but_the_assistant_may_speak_last(role: str) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    last = {"role": role, "content": "4"} | ({"tool_call_id": "c1"} if role == "tool" else {})

    row = {"messages": [USER, call, last], "tools": [TOOL], "weight": [{"of": "anything"}]}

    assert verdict(jsonl(row)).format is Format.PROMPT


@pytest.mark.parametrize(
    ("row", "code", "says"),
    [
        ({"answer": "4"}, "missing_messages_list", "at least one message"),
        (PROMPT | {"messages": []}, "mixed_formats", "it is a chat"),
        (PROMPT | {"messages": [USER | {"content": ""}]}, "missing_content", "message 1"),
        (PROMPT | {"messages": [USER, USER | {"weight": 1}]}, "invalid_weight", "message 2"),
        (PROMPT | {"tools": ["x"]}, "data_type", "item 1: write it"),
        (PROMPT | {f"m{i}": i for i in range(1000)}, "too_many_members", "1003 members"),
        (CHAT, "mixed_formats", "a chat ends with the assistant's message, a prompt with one"),
    ],
)
def test_a_broken_row_is_named_by_line_and_kind(row: object, code: str, says: str) -> None:
    message = refusal(jsonl(PROMPT, row, PROMPT))

    assert "line 2: " in message
    assert f"({code})" in message
    assert says in message


def test_only_a_file_whose_first_row_is_a_prompt_holds_prompts() -> None:
    chats = verdict(jsonl(CHAT, {"messages": [USER, ASSISTANT, USER]}))

    assert (chats.format, chats.examples) == (Format.CHAT, 2)
    assert "last_message_not_assistant" in codes(chats)

    assert verdict(jsonl(PROMPT | {"label": "sum"})).format is Format.PROMPT


def test_odd_turns_and_damaged_text_are_pointed_out() -> None:
    twice = PROMPT | {"messages": [USER, USER]}
    damaged = PROMPT | {"messages": [USER | {"content": "2 + \ufffd?"}]}

    found = codes(verdict(jsonl(*prompts(8), twice, damaged)))

    assert found == ["repeated_role", "replacement_character"]


def test_members_that_templates_can_name_are_kept_with_the_first_line_that_lacks_them() -> None:
    rows = [*prompts(3), *prompts(1, level=None), {"messages": [USER], "late": 1}, *prompts(1)]

    assert verdict(jsonl(*rows)).members == {"answer": 5, "level": 4}
    assert verdict(jsonl(*prompts(2, tools=[TOOL]))).members == {"answer": 0, "level": 0}
    assert verdict(jsonl(CHAT | {"answer": "4"})).members == {}

    odd: dict[str, Any] = {"a b": 1, "a.b": 1, "\1": 1, "": 1, "x" * 257: 1, "\u00e9": 1}

    assert verdict(jsonl(PROMPT | odd)).members == {"answer": 0, "level": 0}
