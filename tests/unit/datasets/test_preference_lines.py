"""Rows of preferences: an answer and a worse one to the same prompt, judged with a chat's care."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from contract.choices import Format
from service.domain.datasets.dataset import DatasetSummary
from service.domain.errors import InvalidFile, PayloadTooLarge
from service.domain.strict_json import MOST_LEVELS
from tests.unit.datasets.test_dataset_properties import JSON, MESSAGES
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

WORSE = {"role": "assistant", "content": "five"}
SAID = {"role": "tool", "content": "4", "tool_call_id": "c1"}
PAIR: dict[str, Any] = {
    "input": {"messages": [USER]},
    "preferred_output": [ASSISTANT],
    "non_preferred_output": [WORSE],
}


def pairs(count: int) -> list[dict[str, Any]]:
    """Good rows that all differ."""
    questions = [USER | {"content": f"{i} + 2?"} for i in range(count)]
    return [PAIR | {"input": {"messages": [question]}} for question in questions]


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in PAIR.items() if key != name}


def test_a_file_of_preferences_is_summed_up_with_the_prompt_in_both_sequences() -> None:
    summary = verdict(jsonl(*pairs(10)))

    assert (summary.format, summary.examples, codes(summary)) == (Format.PREFERENCE, 10, [])
    assert summary.characters == 10 * (2 * len("0 + 2?") + len("4") + len("five"))
    assert summary.tokens == round(summary.characters / 3.5) + 20 * 16  # each sequence its template
    assert verdict(jsonl(CHAT)).format is Format.CHAT


def test_a_row_is_as_long_as_its_prompt_with_the_longer_output() -> None:
    long = [WORSE | {"content": "5 " * 2000}]

    (longest,) = verdict(jsonl(PAIR | {"non_preferred_output": long})).longest
    (joined,) = verdict(jsonl({"messages": [USER, *long]})).longest
    outputs = {"preferred_output": long, "non_preferred_output": [*long, WORSE]}
    summary = verdict(jsonl(*pairs(10), PAIR | outputs))

    assert longest == joined
    assert "long_row" not in codes(summary), "each sequence fits, if both together do not"


def test_tools_and_turns_and_the_other_names_of_the_outputs_are_fine() -> None:
    row = {
        "input": {
            "messages": [{"role": "system", "content": "Add."}, USER],
            "tools": [TOOL],
            "parallel_tool_calls": True,
        },
        "preferred_completion": [
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            SAID,
            ASSISTANT,
        ],
        "non_preferred_completion": [WORSE],
        "note": "members that nobody knows are left alone, as in chats",
    }

    assert codes(verdict(jsonl(*pairs(9), row))) == []


@pytest.mark.parametrize(
    ("row", "code", "expected"),
    [
        (without("input"), "missing_input", "`input`"),
        (PAIR | {"input": [USER]}, "missing_input", "`input`"),
        (PAIR | {"input": {}}, "missing_messages_list", "`input`"),
        (PAIR | {"input": {"messages": []}}, "missing_messages_list", "`input`"),
        (PAIR | {"input": {"messages": [USER], "tools": {}}}, "data_type", "`tools`"),
        (PAIR | {"input": {"messages": [USER], "tools": ["x"]}}, "data_type", "item 1: write it"),
        (PAIR | {"input": {"messages": [{"role": "user"}]}}, "message_missing_key", "input, mess"),
        (without("preferred_output"), "missing_output", "`preferred_output`"),
        (without("non_preferred_output"), "missing_output", "`non_preferred_output`"),
        (PAIR | {"preferred_output": "4"}, "missing_output", "`preferred_output`"),
        (PAIR | {"preferred_output": []}, "missing_output", "`preferred_output`"),
        (PAIR | {"preferred_completion": [ASSISTANT]}, "output_given_twice", "leave one out"),
        (PAIR | {"preferred_output": [ASSISTANT, USER]}, "invalid_output_role", "message 2"),
        (PAIR | {"preferred_output": ["4"]}, "data_type", "preferred_output, message 1"),
        (
            PAIR | {"preferred_output": [ASSISTANT | {"tool_calls": [{"id": "c1"}]}]},
            *("data_type", "preferred_output, message 1: `tool_calls`, item 1: write it as"),
        ),
        (PAIR | {"tools": [TOOL]}, "outside_input", "`tools` is read from `input` only"),
        (PAIR | {"functions": []}, "outside_input", "`functions` is read from `input` only"),
        (PAIR | {"parallel_tool_calls": False}, "outside_input", "`parallel_tool_calls` is read"),
        (
            PAIR | {"preferred_output": [SAID]},
            *("example_missing_assistant_message", "preferred_output: "),
        ),
        (
            PAIR | {"non_preferred_output": [WORSE | {"weight": 0}]},
            *("all_weights_zero", "non_preferred_output: "),
        ),
        ({}, "missing_input", "`input`"),
        (CHAT, "mixed_formats", "a file of their own"),
    ],
)
def test_a_broken_row_is_named_by_line_and_kind(row: object, code: str, expected: str) -> None:
    message = refusal(jsonl(PAIR, row, PAIR))

    assert "line 2: " in message
    assert f"({code})" in message
    assert expected in message


def test_a_preference_among_chats_is_sent_to_a_file_of_its_own() -> None:
    message = refusal(jsonl(CHAT, PAIR, CHAT))

    assert "line 2: it is a preference, but the rows before it are chats" in message


@pytest.mark.parametrize("usual", [CHAT, PAIR])
@pytest.mark.parametrize("name", [n for n in PAIR if n != "input"] + ["preferred_completion"])
def test_messages_beside_an_output_are_sent_into_the_input(usual: object, name: str) -> None:
    message = refusal(jsonl(usual, CHAT | {name: [ASSISTANT]}))

    fault = f"it has `messages` and `{name}`: move the messages into `input`"
    assert f"line 2: {fault} (mixed_formats)" in message


def test_null_members_are_as_if_left_out_and_the_first_good_row_decides_the_format() -> None:
    tools = dict.fromkeys(["tools", "functions", "parallel_tool_calls"])

    assert verdict(jsonl(PAIR | tools)).format is Format.PREFERENCE
    assert verdict(jsonl(CHAT | dict.fromkeys(PAIR))).format is Format.CHAT

    broken: dict[str, Any] = {"messages": []}

    assert "1 of 3 lines are wrong (1 missing_messages_list)" in refusal(jsonl(broken, PAIR, PAIR))


def test_pairs_of_another_format_are_told_how_to_be_ours() -> None:
    row = {"prompt": "2 + 2?", "chosen": "4", "rejected": "5"}

    assert "rename it to `preferred_output`" in refusal(jsonl(row))


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (PAIR | {"non_preferred_output": [ASSISTANT]}, "equal_outputs"),
        (PAIR | {"input": {"messages": [USER, USER]}}, "repeated_role"),
        (PAIR | {"input": {"messages": [USER, ASSISTANT]}}, "repeated_role"),
        (PAIR | {"input": {"messages": [USER | {"role": "system"}]}}, "missing_user_message"),
        (
            {"input": {"messages": [USER], "tools": [TOOL]}, "non_preferred_output": [WORSE]}
            | {"preferred_output": [ASSISTANT | {"tool_calls": [CALL]}, SAID]},
            "last_message_not_assistant",
        ),
        (PAIR | {"preferred_output": [ASSISTANT | {"tool_calls": [CALL]}]}, "undeclared_tool"),
        (PAIR | {"preferred_output": [SAID, ASSISTANT]}, "result_without_call"),
        (PAIR | {"non_preferred_output": [WORSE | {"content": "a\x07"}]}, "control_character"),
        (pairs(3)[1], "duplicate_row"),
    ],
)
def test_an_odd_row_is_kept_and_pointed_out(row: object, code: str) -> None:
    summary = verdict(jsonl(*pairs(12), row))

    assert summary.examples == 13
    assert [(w.line, w.code) for w in summary.warnings] == [(13, code)]


@given(depth=st.integers(1, 2000))
@example(57)
@example(58)
@example(50_000)
def test_outputs_nested_however_deeply_get_a_verdict(depth: int) -> None:
    called = (
        f'{{"function": {{"name": "f", "arguments": "{{}}"}}, "a": {"[" * depth}{"]" * depth}}}'
    )
    deep = f'[{{"role": "assistant", "tool_calls": [{called}]}}]'
    row = f'{{"input": {json.dumps(PAIR["input"])}, "preferred_output": {deep}, '

    result = outcome((row + f'"non_preferred_output": {deep}}}').encode(), 1 << 16)

    levels = depth + 5  # row, output, message, tool_calls, call
    assert isinstance(result, DatasetSummary) == (levels <= MOST_LEVELS)
    assert levels <= MOST_LEVELS or "nested deeper than 64 levels" in str(result)


def outcome(data: bytes, size: int) -> object:
    try:
        return verdict(data, size, max_line_bytes=1 << 18, max_examples=4)
    except (InvalidFile, PayloadTooLarge) as error:
        return f"{error.code}: {error.message} {error.details}"


OUTPUTS = st.lists(MESSAGES, max_size=2) | JSON
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "input": st.fixed_dictionaries({"messages": st.lists(MESSAGES, max_size=2)}) | JSON,
        "preferred_output": OUTPUTS,
        "non_preferred_output": OUTPUTS,
        "preferred_completion": OUTPUTS,
        "messages": OUTPUTS,
    },
)


@settings(max_examples=80)
@given(st.lists(ROWS | st.sampled_from([PAIR, CHAT]), max_size=5), st.integers(1, 50))
def test_any_rows_get_a_verdict_and_chunks_never_change_it(rows: list[Any], size: int) -> None:
    data = jsonl(*rows)

    assert outcome(data, size) == outcome(data, max(len(data), 1))
