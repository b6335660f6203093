"""Datasets: every broken line is named by number and kind, and no input breaks the reader."""

import hashlib
import json
import tracemalloc

import pytest

from service.domain.datasets.dataset import MOST_SHOWN, DatasetLimits, DatasetValidator, _Findings
from service.domain.datasets.duplicates import SeenRows
from service.domain.datasets.json_line import DatasetProblem
from service.domain.errors import InvalidFile, PayloadTooLarge
from tests.unit.trainer.data.chat_rows import (
    ASSISTANT,
    CALL,
    CHAT,
    NOT_TOOLS,
    TOOL,
    USER,
    codes,
    jsonl,
    message,
    refusal,
    refused,
    rows,
    verdict,
)


def test_a_good_file_is_summed_up() -> None:
    data = jsonl(*rows(10), {"messages": [USER, {"role": "assistant", "content": "four!"}]})

    summary = verdict(data)

    assert (summary.examples, summary.bytes) == (11, len(data))
    assert summary.sha256 == hashlib.sha256(data).hexdigest()
    assert summary.characters == 10 * 7 + 11
    assert summary.longest[0][0] == 11
    assert (summary.warnings, summary.warning_counts) == ((), {})
    assert summary.mean_tokens > 2


def test_good_rows_may_have_tools_weights_text_parts_and_members_that_are_null() -> None:
    row = {
        "messages": [
            {"role": "system", "content": "Add."},
            {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
            USER,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "content": "", "tool_call_id": "c1"},
            {"role": "assistant", "content": "5", "weight": 0},
            {"role": "user", "content": "No.", "name": "ada"},
            {"role": "assistant", "content": "4", "weight": 1},
        ],
        "tools": [TOOL, {"type": "function", "function": {"name": "count"}}],
        "parallel_tool_calls": False,
    }

    assert verdict(jsonl(row)).examples == 1

    calls = {"messages": [USER, ASSISTANT | {"tool_calls": None}, USER, ASSISTANT]}
    empty = {"messages": [USER, ASSISTANT | {"tool_calls": []}], "tools": []}
    assert verdict(jsonl(calls | {"tools": None, "functions": None}, empty)).examples == 2


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ([CHAT], "data_type"),
        ({"prompt": "2 + 2?", "completion": "4"}, "missing_messages_list"),
        ({"messages": []}, "missing_messages_list"),
        ({"messages": {}}, "missing_messages_list"),
        ({"messages": ["hello"]}, "data_type"),
        (CHAT | {"tools": {}}, "data_type"),
        (message(role="user"), "message_missing_key"),
        (message(content="2 + 2?"), "message_missing_key"),
        (message(role="user", content="a", wieght=1), "message_unrecognized_key"),
        (message(role="human", content="a"), "unrecognized_role"),
        (message(role=["user"], content="a"), "unrecognized_role"),
        (message(role="user", content=""), "missing_content"),
        (message(role="user", content=7), "missing_content"),
        (message(role="user", content=[{"type": "text"}]), "missing_content"),
        (message(role="user", content=[{"type": "image_url"}]), "unsupported_content_part"),
        (message(role="user", content="a", weight=1), "invalid_weight"),
        (message(role="assistant", content="a", weight=True), "invalid_weight"),
        (message(role="assistant", content=None, tool_calls="add"), "data_type"),
        (message(role="user", content="\ud800"), "invalid_encoding"),
        (message(role="user", content=[{"type": "text", "text": "\udfff"}]), "invalid_encoding"),
        ({"messages": [USER]}, "example_missing_assistant_message"),
        ({"messages": [USER, ASSISTANT | {"weight": 0}]}, "all_weights_zero"),
    ],
)
def test_a_broken_row_is_named_by_line_and_kind(row: object, code: str) -> None:
    message = refusal(jsonl(CHAT, row, CHAT))

    assert "line 2: " in message
    assert f"({code})" in message


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", "invalid_json"),
        (b'{"messages": NaN}', "invalid_json"),
        (b"[" * 100_000, "invalid_json"),
        (b'{"messages": ' + b"9" * 5000 + b"}", "invalid_json"),
        (b'{"messages": "\xff"}', "invalid_encoding"),
        ("\ufeff{}".encode(), "invalid_json"),
        (json.dumps(CHAT).encode("utf-16"), "invalid_encoding"),
    ],
)
def test_a_line_that_is_not_json_in_utf8_is_named(line: bytes, code: str) -> None:
    message = refusal(jsonl(CHAT) + line + b"\n")

    assert "line 2: " in message
    assert f"({code})" in message


@pytest.mark.parametrize("wrong", NOT_TOOLS, ids=str)
def test_a_tool_that_no_chat_template_can_read_is_named_with_its_form(wrong: object) -> None:
    message = refusal(jsonl(CHAT | {"tools": [TOOL, wrong]}))

    assert '`tools`, item 2: write it as {"type": "function", ' in message
    assert "(data_type)" in message


@pytest.mark.parametrize("wrong", ["add", None, {}, {"name": ""}, TOOL], ids=str)
def test_a_function_of_the_older_form_needs_a_name(wrong: object) -> None:
    message = refusal(jsonl(CHAT | {"functions": [TOOL["function"], wrong]}))

    assert '`functions`, item 2: write it as {"name": "..."} (data_type)' in message


@pytest.mark.parametrize("wrong", NOT_TOOLS, ids=str)
def test_a_call_that_no_chat_template_can_read_is_named_with_its_form(wrong: object) -> None:
    calls = ASSISTANT | {"tool_calls": [CALL, wrong]}
    message = refusal(jsonl({"messages": [USER, calls]}))

    assert 'message 2: `tool_calls`, item 2: write it as {"type": "function", ' in message
    assert "(data_type)" in message


def test_a_file_without_rows_is_refused() -> None:
    assert "is empty" in refusal(b"")
    assert "blank lines only" in refusal(b"\n \r\n")


def test_blank_lines_and_a_byte_order_mark_are_pointed_out_and_ignored() -> None:
    summary = verdict(b"\xef\xbb\xbf" + jsonl(CHAT) + b"\r\n\n" + jsonl(CHAT))

    assert summary.examples == 2
    assert [(w.line, w.code) for w in summary.warnings][:3] == [
        (1, "byte_order_mark"),
        (2, "blank_line"),
        (3, "blank_line"),
    ]
    assert "line 1: " in refusal(b"\xef\xbb\xbf\n" + jsonl(CHAT)), "alone it is no row"


def test_few_examples_are_pointed_out_and_usual_characters_are_not() -> None:
    plain = {"messages": [USER, ASSISTANT | {"content": "a\n\tb\r\n\xe9\u20ac\U0001f642 \uff01"}]}

    assert codes(verdict(jsonl(*rows(9)))) == ["few_examples"]
    assert codes(verdict(jsonl(*rows(10), plain))) == []


def test_the_first_errors_are_shown_and_all_are_counted() -> None:
    error = refused(jsonl(CHAT) + b"{}\n" * 150 + b"[\n")

    assert error.details["counts"] == {"missing_messages_list": 150, "invalid_json": 1}
    assert [e["line"] for e in error.details["errors"]] == list(range(2, 102))
    assert "151 of 152 lines are wrong (150 missing_messages_list, 1 invalid_json)" in error.message
    assert "The first 20: line 2: " in error.message
    assert "line 21: " in error.message
    assert "line 22: " not in error.message


def test_an_endless_line_is_named_and_never_held() -> None:
    validator = DatasetValidator(DatasetLimits(max_line_bytes=1 << 20))
    piece = b"x" * (1 << 16)
    tracemalloc.start()
    for _ in range(1000):  # 62 MiB on line 1
        validator.feed(piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    validator.feed(b"\n" + jsonl(CHAT))

    assert peak < 4 << 20
    with pytest.raises(InvalidFile, match=r"line 1: .*MAX_LINE_BYTES.*\(line_too_long\)"):
        validator.finish()


def test_a_file_beyond_the_limit_is_refused_while_it_arrives() -> None:
    with pytest.raises(PayloadTooLarge, match=r"100 bytes.*REKINDLE_FILE_MAX_BYTES"):
        verdict(jsonl(*[CHAT] * 10), max_bytes=100)


def test_more_examples_than_the_limit_are_refused() -> None:
    assert verdict(jsonl(*rows(3)), max_examples=3).examples == 3
    with pytest.raises(PayloadTooLarge, match=r"more than 3 .*REKINDLE_FILE_MAX_EXAMPLES"):
        verdict(jsonl(*rows(4)), max_examples=3)


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({"messages": [ASSISTANT]}, "missing_user_message"),
        ({"messages": [USER, ASSISTANT, USER]}, "last_message_not_assistant"),
        ({"messages": [USER, USER, ASSISTANT]}, "repeated_role"),
        ({"messages": [USER, ASSISTANT | {"content": "a\x07b"}]}, "control_character"),
        ({"messages": [USER, ASSISTANT | {"content": "a\x7fb"}]}, "control_character"),
        ({"messages": [USER, ASSISTANT | {"content": "caf\ufffd"}]}, "replacement_character"),
        ({"messages": [USER, ASSISTANT | {"content": "4 " * 8000}]}, "long_row"),
        (rows(3)[1], "duplicate_row"),
    ],
)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_an_odd_row_is_kept_and_pointed_out(row: object, code: str, ascii_only: bool) -> None:
    line = json.dumps(row, ensure_ascii=ascii_only).encode()
    summary = verdict(jsonl(*rows(12)) + line)

    assert summary.examples == 13
    assert [(w.line, w.code) for w in summary.warnings] == [(13, code)]


def test_crlf_line_ends_are_pointed_out_once_and_skipped() -> None:
    summary = verdict(jsonl(*rows(12)).replace(b"\n", b"\r\n") + jsonl(rows(1)[0]))

    assert [(w.line, w.code) for w in summary.warnings] == [
        (1, "crlf_line_ends"),
        (13, "duplicate_row"),
    ]


def test_one_kind_of_warning_does_not_hide_another() -> None:
    summary = verdict(jsonl(*[CHAT] * 500, {"messages": [ASSISTANT]}))

    assert summary.warning_counts == {"duplicate_row": 499, "missing_user_message": 1}
    assert codes(summary).count("duplicate_row") == 20
    assert summary.warnings[-1].line == 501


def test_of_every_kind_of_warning_one_is_shown_however_many_there_are() -> None:
    findings = _Findings(max_per_kind=20)
    for line, code in enumerate([*"abcde" * 40, "late", "later"], 1):
        findings.add(line, DatasetProblem(code, code))
    reported = findings.shown

    assert len(reported) == MOST_SHOWN
    assert {f.code for f in reported} == {*"abcde", "late", "later"}
    assert [f.line for f in reported] == [*range(1, 99), 201, 202]


def test_the_longest_rows_are_remembered_with_their_lines() -> None:
    answers = [ASSISTANT | {"content": "a" * (7 * i)} for i in range(1, 151)]
    summary = verdict(jsonl(*({"messages": [USER, a]} for a in reversed(answers))))

    assert [line for line, _ in summary.longest] == list(range(1, 101))
    assert summary.longest[0] == (1, 318)
    assert summary.longest[99] == (100, 120)


def test_duplicates_are_found_among_a_bounded_number_of_rows() -> None:
    rows_seen = SeenRows(most=2000)
    lines = [str(i).encode() for i in range(3000)]

    assert not any(rows_seen.first_line(row, i) for i, row in enumerate(lines, 1))
    assert rows_seen.is_full
    assert [rows_seen.first_line(row, 9999) for row in lines[:2000]] == list(range(1, 2001))
    assert not any(rows_seen.first_line(row, 9999) for row in lines[2000:])
