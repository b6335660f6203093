"""What is no JSONL, or nearly JSONL, is recognised and met with a remedy."""

import gzip
import json

import pytest

from service.domain.datasets.dataset import DatasetValidator
from service.domain.errors import InvalidFile
from tests.unit.trainer.data.chat_rows import CHAT, jsonl, message_from, refusal, refused, rows


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
    wrong = refused(data)

    assert wrong.details["counts"] == {code: 1}
    assert remedy in wrong.message


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
