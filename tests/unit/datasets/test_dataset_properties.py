"""Any bytes get a verdict in bounded memory; what is no JSONL is met with a remedy."""

import gc
import gzip
import json
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from service.domain.datasets.dataset import DatasetSummary, DatasetValidator
from service.domain.errors import InvalidFile, PayloadTooLarge
from tests.unit.trainer.data.chat_rows import (
    ASSISTANT,
    CHAT,
    jsonl,
    message_from,
    refusal,
    refused,
    rows,
    verdict,
)

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
        return verdict(data, size, max_line_bytes=200, max_bytes=2000, max_examples=4)
    except (InvalidFile, PayloadTooLarge) as error:
        return f"{error.code}: {error.message} {error.details}"


@settings(max_examples=80)
@given(st.lists(LINES, max_size=6).map(b"\n".join), st.integers(1, 50))
@example(b"\xef\xbb\xbf" + jsonl(CHAT), 1)
@example(b"x" * 201, 7)
@example(b"\n" * 2500 + b"[", 50)
@example(b" " * 17 + b"[1]", 3)
@example(b"\n[" + b"\0" * 11 + b"\n\0\0", 1)
@example(b"BZh\n" + b"\0" * 13, 1)
def test_any_bytes_get_a_verdict_and_chunks_never_change_it(data: bytes, size: int) -> None:
    assert outcome(data, size) == outcome(data, max(len(data), 1))


GOOD, ODD, BAD, BLANK = "good", "odd", "bad", "blank"


def line_of(kind: str, number: int) -> bytes:
    question = {"role": "user", "content": f"{number} + 2?"}
    lines: dict[str, object] = {
        GOOD: {"messages": [question, ASSISTANT]},
        ODD: {"messages": [question, question, ASSISTANT]},
        BAD: {"messages": [question, ASSISTANT | {"weight": 0}]},
    }
    return b"" if kind == BLANK else json.dumps(lines[kind]).encode()


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from([GOOD, ODD, BAD, BLANK]), min_size=1, max_size=60),
    st.integers(1, 5000),
    st.sampled_from([b"\n", b"\r\n"]),
)
def test_every_finding_bears_the_number_of_its_line(
    kinds: list[str], size: int, end: bytes
) -> None:
    data = b"".join(line_of(kind, i) + end for i, kind in enumerate(kinds))
    lines = {kind: [i for i, k in enumerate(kinds, 1) if k == kind] for kind in set(kinds)}

    try:
        summary = verdict(data, size)
    except InvalidFile as error:
        errors = error.details["errors"]
        assert [e["line"] for e in errors] == lines.get(BAD, [])
        assert BAD in lines or set(kinds) == {BLANK}
        return

    assert summary.examples == len(lines.get(GOOD, [])) + len(lines.get(ODD, []))
    for kind, code in ((ODD, "repeated_role"), (BLANK, "blank_line")):
        expected = lines.get(kind, [])
        assert [w.line for w in summary.warnings if w.code == code] == expected[:20]
        assert summary.warning_counts.get(code, 0) == len(expected)


@pytest.mark.parametrize("kind", [GOOD, ODD, BAD, BLANK])
def test_memory_stays_flat_whatever_the_lines_are(kind: str) -> None:
    validator = DatasetValidator()
    tracemalloc.start()
    for number in range(5_000):  # more than half a MiB
        validator.feed(line_of(kind, number) + b"\n")
    gc.collect()  # empties the interpreter's free lists, which fill by what ran before
    allocated, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert allocated < 300_000, f"{allocated} bytes"


@pytest.mark.parametrize(
    ("data", "code", "remedy"),
    [
        (gzip.compress(jsonl(CHAT), mtime=0), "file_is_gzip", "gunzip"),
        (b"PK\x03\x04" + b"\0" * 30, "file_is_zip", "JSONL inside"),
        (b"PAR1" + b"\0" * 30, "file_is_parquet", "to_json"),
        (b"%PDF-1.7\n" + b"x" * 30, "file_is_pdf", "as one line"),
        (jsonl(CHAT).decode().encode("utf-16"), "file_is_utf16", "UTF-8"),
        (json.dumps(rows(3)).encode(), "file_is_json_array", "jq -c '.[]'"),
        (json.dumps(rows(3), indent=2).encode(), "file_is_json_array", "jq -c '.[]'"),
        (b"\n" * 20 + json.dumps(rows(3)).encode(), "file_is_json_array", "jq -c '.[]'"),
        (json.dumps(CHAT, indent=2).encode(), "file_is_pretty_json", "jq -c ."),
        (b"prompt,completion\n2+2?,4\n", "file_is_csv", "one line of JSON"),
        (b"prompt\tcompletion\n2+2?\t4\n", "file_is_csv", "one line of JSON"),
        (b'"question";"answer"\n', "file_is_csv", "one line of JSON"),
    ],
)
def test_another_kind_of_file_is_recognised(data: bytes, code: str, remedy: str) -> None:
    error = refused(data)

    assert error.details["counts"] == {code: 1}
    assert remedy in error.message


def test_another_kind_of_file_is_refused_with_its_first_bytes() -> None:
    validator = DatasetValidator()

    with pytest.raises(InvalidFile, match="gunzip"):
        validator.feed(gzip.compress(b"x" * 1000, mtime=0)[:16])


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        (json.dumps(CHAT).encode() + b",", "a comma follows the row"),
        (b"train.jsonl", "curl write -F file=@NAME"),
        (json.dumps(CHAT).encode() * 2, "one JSON object a line"),
        (json.dumps(CHAT).encode() + b"\r" + json.dumps(CHAT).encode(), "CR alone"),
        (str(CHAT).encode(), "json.dumps"),
        (b'{"messages": [1,]}', "a comma too many"),
        (b'{"messages": [{"role": "user", "content": "a\tb"}]}', "write it as"),
        (json.dumps(CHAT).encode()[:-9], "breaks off"),
        ("{'messages': 'caf\xe9'}".encode("latin-1"), "0xe9"),
        (b'{"prompt": "2+2?", "completion": "4"}', "it has `prompt`"),
        (b'{"conversations": []}', "ShareGPT"),
        (json.dumps(message_from("human")).encode(), "write 'user'"),
        (json.dumps(message_from("gpt")).encode(), "write 'assistant'"),
    ],
)
def test_a_usual_mistake_is_met_with_its_remedy(line: bytes, remedy: str) -> None:
    message = refusal(jsonl(CHAT) + line + b"\n")

    assert "line 2: " in message
    assert remedy in message
