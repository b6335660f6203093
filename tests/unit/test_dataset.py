"""Datasets: every broken line is named by number and kind, and no input breaks the reader."""

import hashlib
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from service.domain.dataset import ChatValidator, DatasetSummary
from service.domain.errors import InvalidRequest, PayloadTooLarge

USER = {"role": "user", "content": "2 + 2?"}
ASSISTANT = {"role": "assistant", "content": "4"}
CHAT = {"messages": [USER, ASSISTANT]}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}


def jsonl(*rows: object) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def verdict(data: bytes, size: int = 1 << 16, **limits: int) -> DatasetSummary:
    validator = ChatValidator(**limits)
    for start in range(0, len(data), size):
        validator.feed(data[start : start + size])
    return validator.finish()


def refusal(data: bytes, **limits: int) -> str:
    with pytest.raises(InvalidRequest) as refused:
        verdict(data, **limits)
    assert (refused.value.code, refused.value.param) == ("invalid_file_format", "file")
    return refused.value.message


def test_a_good_file_is_summed_up() -> None:
    data = jsonl(*[CHAT] * 12, {"messages": [USER, {"role": "assistant", "content": "four!"}]})

    found = verdict(data)

    assert (found.examples, found.bytes) == (13, len(data))
    assert found.sha256 == hashlib.sha256(data).hexdigest()
    assert found.characters == 12 * 7 + 11
    assert found.longest_characters == 11
    assert found.warnings == ()
    assert found.mean_tokens > 2


def test_tools_weights_and_text_parts_are_fine() -> None:
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
        "tools": [{"type": "function"}],
        "parallel_tool_calls": False,
    }

    assert verdict(jsonl(row)).examples == 1


def message(**members: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever JSON holds
    return {"messages": [members, ASSISTANT]}


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ([CHAT], "data_type"),
        ("chat", "data_type"),
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
        (message(role="user", content=None), "missing_content"),
        (message(role="user", content=7), "missing_content"),
        (message(role="user", content=[{"type": "text"}]), "missing_content"),
        (message(role="user", content=[{"type": "image_url"}]), "unsupported_content_part"),
        (message(role="user", content="a", weight=1), "invalid_weight"),
        (message(role="assistant", content="a", weight=2), "invalid_weight"),
        (message(role="assistant", content="a", weight=True), "invalid_weight"),
        (message(role="assistant", content=None, tool_calls="add"), "data_type"),
        (message(role="user", content="\ud800"), "invalid_encoding"),
        (message(role="user", content=[{"type": "text", "text": "\udfff"}]), "invalid_encoding"),
        ({"messages": [USER]}, "example_missing_assistant_message"),
        ({"messages": [USER, ASSISTANT | {"weight": 0}]}, "example_missing_assistant_message"),
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


def test_a_file_without_rows_is_refused() -> None:
    assert "no rows" in refusal(b"")
    assert "no rows" in refusal(b"\n \r\n")


def test_blank_lines_and_a_byte_order_mark_are_pointed_out_and_ignored() -> None:
    found = verdict(b"\xef\xbb\xbf" + jsonl(CHAT) + b"\r\n\n" + jsonl(CHAT))

    assert found.examples == 2
    assert any("byte order mark" in warning for warning in found.warnings)
    assert any("2 blank lines" in warning for warning in found.warnings)


def test_a_line_number_counts_blank_lines() -> None:
    assert "line 3: " in refusal(b"\n\n{\n")


def test_the_last_line_needs_no_line_feed() -> None:
    assert verdict(jsonl(CHAT).rstrip()).examples == 1


def test_few_examples_are_pointed_out() -> None:
    assert any("few" in warning for warning in verdict(jsonl(CHAT)).warnings)


def test_only_the_first_errors_are_listed() -> None:
    message = refusal(b"{\n" * 50, max_errors=3)

    assert "The first 3 errors" in message
    assert "line 3" in message
    assert "line 4" not in message


def test_an_endless_line_is_named_and_never_held() -> None:
    validator = ChatValidator(max_line_bytes=1 << 20)
    piece = b"x" * (1 << 16)
    tracemalloc.start()
    for _ in range(1000):  # 62 MiB on line 1
        validator.feed(piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    validator.feed(b"\n" + jsonl(CHAT))

    assert peak < 4 << 20
    with pytest.raises(InvalidRequest, match=r"line 1: .*\(line_too_long\)"):
        validator.finish()
    assert len(validator.errors) == 1


def test_a_file_beyond_the_limit_is_refused_while_it_arrives() -> None:
    with pytest.raises(PayloadTooLarge, match="larger than 100 bytes"):
        verdict(jsonl(*[CHAT] * 10), max_bytes=100)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["messages", "role", "content", "weight", "tools", "tool_calls", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "nobody"]), "content": JSON},
    optional={"weight": JSON, "tool_calls": JSON, "function_call": JSON, "name": JSON},
)
LINES = st.one_of(
    st.binary(max_size=30),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.lists(MESSAGES, max_size=3).map(lambda m: json.dumps({"messages": m}).encode()),
    st.sampled_from([json.dumps(CHAT).encode(), b"", b"\xef\xbb\xbf", b" \r"]),
)


def outcome(data: bytes, size: int) -> DatasetSummary | str:
    try:
        return verdict(data, size, max_line_bytes=200, max_bytes=2000, max_errors=3)
    except (InvalidRequest, PayloadTooLarge) as error:
        return f"{error.code}: {error.message}"


@settings(deadline=None, max_examples=300)
@given(st.lists(LINES, max_size=6).map(b"\n".join), st.integers(1, 50))
@example(b"\xef\xbb\xbf" + jsonl(CHAT), 1)
@example(b"x" * 201, 7)
def test_any_bytes_get_a_verdict_and_chunks_never_change_it(data: bytes, size: int) -> None:
    assert outcome(data, size) == outcome(data, max(len(data), 1))
