"""Text, names, numbers and depth of uploaded rows: what programs read differently is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.strict_json import MOST_LEVELS, loads
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

HERE = "@"  # stands where the text goes
CALLING = ASSISTANT | {"tool_calls": [CALL | {"function": {"name": "f", "arguments": {HERE: 1}}}]}
PAIR: dict[str, Any] = {
    "input": {"messages": [USER]},
    "preferred_output": [ASSISTANT],
    "non_preferred_output": [USER | {"role": "assistant"}],
}
PLACES: list[dict[str, Any]] = [
    {"messages": [USER | {"content": HERE}, ASSISTANT]},
    {"messages": [USER | {"content": [{"type": "text", "text": HERE}]}, ASSISTANT]},
    {"messages": [USER | {"name": HERE}, ASSISTANT]},
    {"messages": [USER, ASSISTANT | {"reasoning_content": HERE}]},
    {"messages": [USER, CALLING]},
    {"messages": [USER, ASSISTANT | {"tool_calls": [CALL | {"id": HERE}]}]},
    {"messages": [USER, {"role": "tool", "content": "4", "tool_call_id": HERE}, ASSISTANT]},
    CHAT | {"tools": [{"type": "function", "function": {"name": HERE}}]},
    CHAT | {"tools": [TOOL | {"function": {"name": "f", "parameters": {"enum": [HERE]}}}]},
    CHAT | {"id": HERE},
    CHAT | {HERE: None},
    CHAT | {"meta": {"of": [{HERE: 1}]}},
    PAIR | {"preferred_output": [ASSISTANT | {"name": HERE}]},
    {"input": {"messages": [USER]}, "ranked_outputs": [[ASSISTANT], [ASSISTANT | {"name": HERE}]]},
    {"messages": [USER], "answer": {HERE: 1}},
    {"text": "a", "label": HERE},
    {"text": HERE, "label": "a"},
]
BAD = ["\ud83d", "\ude42", "\ude42\ud83d", "\ud83d\ud83d\ude42", "\ud83d\ude42\ude42", "a\0b"]


@pytest.mark.parametrize("row", PLACES, ids=str)
@pytest.mark.parametrize("text", BAD, ids=ascii)
def test_half_a_character_and_nul_are_refused_wherever_they_stand(
    row: dict[str, Any], text: str
) -> None:
    line = json.dumps(row).replace(json.dumps(HERE)[1:-1], json.dumps(text)[1:-1])

    message = refusal(line.encode())

    assert "line 1: " in message
    assert "(invalid_encoding)" in message
    assert ("half of a surrogate pair" in message) == (text != "a\0b")
    assert message.isascii()


def test_the_place_of_a_bad_text_is_told() -> None:
    message = refusal(jsonl(CHAT, {"messages": [USER, ASSISTANT | {"name": "\ud83d"}]}))

    assert "line 2: messages, item 2, name: \\ud83d is half of a surrogate pair" in message


@pytest.mark.parametrize(
    "text", ["\U0001f642", "\\ud83d", "\\\U0001f642", "\ue000\ufffd", "\u2028"]
)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_whole_characters_pass_however_they_are_written(text: str, ascii_only: bool) -> None:
    row = {"messages": [USER | {"content": text, "name": text}, ASSISTANT]}

    assert verdict(json.dumps(row, ensure_ascii=ascii_only).encode()).examples == 1


@given(st.text(alphabet='\\ud83\ud83d\ude42u0000\0"x', max_size=8))
def test_a_text_passes_if_and_only_if_it_can_be_stored(text: str) -> None:
    try:
        parsed = loads(json.dumps([text]))
    except ValueError:
        parsed = None

    halves = any("\ud800" <= c <= "\udfff" for c in json.loads(json.dumps(text)))
    assert (parsed is None) == (halves or "\0" in text)
    assert parsed in (None, [json.loads(json.dumps(text))])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("NaN", "NaN is not a JSON value"),
        ("-Infinity", "-Infinity is not a JSON value"),
        ("1e400", "1e400 is out of the range of numbers"),
        ("-1e400", "-1e400 is out of the range of numbers"),
        ("1e-400", "1e-400 is out of the range of numbers"),
        ("18446744073709551616", "does not fit into 64 bits"),
        ("-9223372036854775809", "does not fit into 64 bits"),
        ("9" * 5000, "does not fit into 64 bits"),
        ('{"a": 1, "b": 2, "a": 3}', "'a' is given twice in one object"),
        ('{"a": 1, "\\u0061": 3}', "'a' is given twice in one object"),
        ("[" * MOST_LEVELS + "]" * MOST_LEVELS, "nested deeper than 64 levels"),
        ('{"a":' * MOST_LEVELS + "1" + "}" * MOST_LEVELS, "nested deeper than 64 levels"),
        ('[{"a": ' * 50_000 + "1" + "}]" * 50_000, "nested deeper than 64 levels"),
    ],
    ids=lambda value: value[:24],
)
def test_what_other_programs_read_differently_is_refused(value: str, expected: str) -> None:
    line = json.dumps(CHAT)[:-1] + f', "more": {value}}}'

    message = refusal(line.encode())

    assert message.startswith("1 of 1 lines are wrong (1 invalid_json). line 1: ")
    assert expected in message


@pytest.mark.parametrize(
    "value",
    [
        *("0", "-0.0", "0e5", "1e308", "5e-324", "0.1", "18446744073709551615", "true"),
        *("-9223372036854775808", '{"a": 1, "a": 1}', "[" * 63 + "]" * 63, "[" + "[]," * 99 + "1]"),
    ],
    ids=lambda value: value[:24],
)
def test_what_every_program_reads_alike_passes(value: str) -> None:
    line = json.dumps(CHAT)[:-1] + f', "more": {value}}}'

    assert verdict(line.encode()).examples == 1


def test_rows_between_white_space_are_read() -> None:
    line = b" \t" + json.dumps(CHAT).encode() + b" \r\n"

    assert codes(verdict(line)) == ["crlf_line_ends", "few_examples"]
