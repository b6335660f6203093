"""Calls of tools in uploaded rows: what no chat template can render is refused with its line."""

import json
from typing import Any

import pytest

from service.domain.strict_json import MOST_LEVELS
from tests.unit.trainer.data.chat_rows import (
    ASSISTANT,
    CALL,
    TOOL,
    USER,
    codes,
    jsonl,
    refusal,
    rows,
    verdict,
)

ADD = {"name": "add", "arguments": "{}"}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}
OLD_CALLING = {"role": "assistant", "content": None, "function_call": ADD}
RESULT = {"role": "tool", "content": "4", "tool_call_id": "c1"}
OLD_RESULT = {"role": "function", "content": "4", "name": "add"}
DEEP = "{" + '"a": {' * (MOST_LEVELS - 1) + "}" * MOST_LEVELS  # as deep as rows may be
NOT_ARGUMENTS = [  # and what is said of them
    (None, "must be a JSON object, or a string that holds one"),
    (7, "must be a JSON object, or a string that holds one"),
    (["{}"], "must be a JSON object, or a string that holds one"),
    ("", "is empty; write '{}'"),
    (" ", "is empty; write '{}'"),
    ("{'a': 2}", "is no JSON (Expecting property name enclosed in double quotes at column 2)"),
    ('{"a": 2', "is no JSON (Expecting ',' delimiter at column 8)"),
    ("None", "is no JSON (Expecting value at column 1)"),
    ("[1]", "must hold a JSON object"),
    ("null", "must hold a JSON object"),
    ('"{}"', "is encoded as JSON twice"),
    ('{"a": NaN}', "NaN is not a JSON value"),
    ('{"a": 1e999}', "1e999 is out of the range of numbers"),
    ('{"a": 1, "a": 2}', "'a' is given twice in one object"),
    ('{"a": ["\\ud83d"]}', "a, item 1: \\ud83d is half of a surrogate pair"),
    ('{"\\u0000": 1}', "it holds the character NUL"),
    ('{"a": ' + "[" * 64 + "]" * 64 + "}", "nested deeper than 64 levels"),
]


def chat(*messages: object, **members: object) -> dict[str, Any]:
    return {"messages": [USER, *messages]} | members


def warned(row: object) -> list[str]:
    """Return the codes of the warnings about a file that holds this row among others."""
    return codes(verdict(jsonl(*rows(10), row)))


@pytest.mark.parametrize(("arguments", "expected"), NOT_ARGUMENTS)
def test_arguments_that_are_no_json_object_are_refused_with_what_is_wrong(
    arguments: object, expected: str
) -> None:
    function = {"name": "add", "arguments": arguments}
    newer = chat(CALLING | {"tool_calls": [{"function": function}]})
    older = chat(OLD_CALLING | {"function_call": function})

    assert "line 1: message 2: `tool_calls`, item 1: `arguments`" in refusal(jsonl(newer))
    assert expected in refusal(jsonl(newer))
    assert "line 1: message 2: `function_call`: `arguments`" in refusal(jsonl(older))
    assert expected in refusal(jsonl(older))


@pytest.mark.parametrize(
    "arguments",
    [DEEP, ' {"a": 2} ', {}, {"a": {"b": [2]}}, json.dumps({"a": "\U0001f642 \\ud83d"})],
    ids=str,
)
def test_arguments_are_an_object_or_a_string_that_holds_one(arguments: object) -> None:
    function = {"name": "add", "arguments": arguments}

    assert warned(chat(CALLING | {"tool_calls": [{"function": function}]}, tools=[TOOL])) == []


@pytest.mark.parametrize(
    ("row", "code", "expected"),
    [
        (chat(OLD_CALLING | {"function_call": "auto"}), "data_type", "`function_call`: write it"),
        (chat(OLD_CALLING | {"function_call": {}}), "data_type", "`function_call`: write it as"),
        (chat(OLD_CALLING | {"function_call": {"name": "add"}}), "data_type", "`arguments` must"),
        (chat(CALLING | {"tool_calls": [CALL | {"id": 7}]}), "data_type", "`id` must be a string"),
        (chat(CALLING | {"tool_calls": [CALL | {"type": "custom"}]}), "data_type", "write it as"),
        (chat(CALLING, RESULT | {"tool_call_id": 7}), "data_type", "`tool_call_id` must be a str"),
        (chat(ASSISTANT | {"name": ["x"]}), "data_type", "`name` must be a string"),
        (chat(ASSISTANT | {"reasoning_content": {}}), "data_type", "`reasoning_content` must be"),
        (chat(OLD_CALLING, OLD_RESULT | {"name": ""}), "message_missing_key", "needs its `name`"),
        (chat(USER | {"tool_calls": [CALL]}), "misplaced_member", "messages of role assistant"),
        (chat(RESULT | {"function_call": ADD}), "misplaced_member", "messages of role assistant"),
        (chat(USER | {"reasoning_content": "Hm."}), "misplaced_member", "of role assistant"),
        (chat(ASSISTANT | {"tool_call_id": "c1"}), "misplaced_member", "messages of role tool"),
        (chat(ASSISTANT | {"refusal": "No."}), "not_rendered", "write its text as `content`"),
        (chat(ASSISTANT | {"audio": {"id": "a"}}), "not_rendered", "leave the row out"),
        (chat(CALLING | {"function_call": ADD}), "mixed_formats", "`tool_calls` with `function_c"),
        (chat(CALLING, OLD_RESULT), "mixed_formats", "`tool_calls` with role function"),
        (chat(OLD_CALLING, RESULT), "mixed_formats", "role tool with `function_call`"),
        (chat(OLD_CALLING, tools=[TOOL]), "mixed_formats", "tools with `function_call`"),
        (chat(CALLING, functions=[ADD]), "mixed_formats", "`tool_calls` with functions"),
        (chat(ASSISTANT, tools=[TOOL], functions=[ADD]), "mixed_formats", "tools with functions"),
        (
            {"input": chat(tools=[TOOL]), "preferred_output": [OLD_CALLING, ASSISTANT]}
            | {"non_preferred_output": [ASSISTANT]},
            "mixed_formats",
            "tools with `function_call`",
        ),
    ],
)
def test_a_call_that_is_misshapen_or_misplaced_is_refused(
    row: Any,  # noqa: ANN401
    code: str,
    expected: str,
) -> None:
    row = row if "input" in row or row["messages"][-1]["role"] == "assistant" else closed(row)
    message = refusal(jsonl(row))

    assert expected in message
    assert f"({code})" in message


def closed(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"messages": [*row["messages"], ASSISTANT]}


@pytest.mark.parametrize(
    ("row", "warnings"),
    [
        (chat(CALLING, RESULT, ASSISTANT, tools=[TOOL]), []),
        (chat(CALLING, RESULT | {"tool_call_id": None}, ASSISTANT, tools=[TOOL]), []),
        (chat(OLD_CALLING, OLD_RESULT, ASSISTANT, functions=[ADD]), []),
        (chat(CALLING, RESULT, ASSISTANT), ["undeclared_tool"]),
        (chat(OLD_CALLING, ASSISTANT), ["undeclared_tool"]),
        (chat(CALLING, RESULT, ASSISTANT, tools=[{"function": ADD | {"name": "sum"}}]), 1),
        (chat(CALLING, RESULT | {"tool_call_id": "c2"}, ASSISTANT, tools=[TOOL]), 2),
        (chat(RESULT, CALLING, ASSISTANT, tools=[TOOL]), 2),
        (chat(RESULT | {"tool_call_id": None}, ASSISTANT, tools=[TOOL]), 2),
        (chat(OLD_CALLING, OLD_RESULT | {"name": "sum"}, ASSISTANT, functions=[ADD]), 2),
    ],
)
def test_a_call_without_its_tool_and_a_result_without_its_call_are_pointed_out(
    row: object, warnings: list[str] | int
) -> None:
    kinds = {1: ["undeclared_tool"], 2: ["result_without_call"]}
    expected = kinds[warnings] if isinstance(warnings, int) else warnings

    assert [code for code in warned(row) if code != "repeated_role"] == expected


def test_reasoning_counts_as_text_and_is_looked_at() -> None:
    thinking = ASSISTANT | {"reasoning_content": "Two and two."}
    damaged = ASSISTANT | {"reasoning_content": "Two \ufffd"}

    assert (
        verdict(jsonl(chat(thinking))).characters == verdict(jsonl(chat(ASSISTANT))).characters + 12
    )
    assert warned(chat(ASSISTANT | {"reasoning_content": None})) == []
    assert warned(chat(damaged)) == ["replacement_character"]
