"""Recognise files that are not JSONL, and say how to convert them."""

from typing import Final

HEAD_BYTES: Final = 16  # enough of a file for ``of_head``

_BOM = b"\xef\xbb\xbf"
_ROW = '{"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}'
_MAGIC: tuple[tuple[bytes, str, str], ...] = (
    (b"\x1f\x8b", "gzip", "is compressed with gzip. Run `gunzip FILE` and upload what comes out."),
    (b"PK\x03\x04", "zip", "is a zip archive (or an Excel sheet). Upload the JSONL inside."),
    (b"PK\x05\x06", "zip", "is an empty zip archive. Upload the JSONL itself."),
    (b"BZh", "bzip2", "is compressed with bzip2. Run `bunzip2 FILE` and upload what comes out."),
    (b"\xfd7zXZ\x00", "xz", "is compressed with xz. Run `unxz FILE` and upload what comes out."),
    (
        b"\x28\xb5\x2f\xfd",
        "zstd",
        "is compressed with zstd. Run `unzstd FILE` first.",
    ),
    (b"7z\xbc\xaf\x27\x1c", "7z", "is a 7z archive. Upload the JSONL inside."),
    (b"PAR1", "parquet", "is Parquet. Write it as JSONL, e.g. with datasets: ds.to_json(FILE)."),
    (b"ARROW1", "arrow", "is Arrow. Write it as JSONL, e.g. with datasets: ds.to_json(FILE)."),
    (b"SQLite format 3", "sqlite", "is an SQLite database. Write its rows as JSONL."),
    (b"%PDF-", "pdf", f"is a PDF. Write each example as one line: {_ROW}"),
    (b"\xff\xfe", "utf16", "is UTF-16. Save it as UTF-8."),
    (b"\xfe\xff", "utf16", "is UTF-16. Save it as UTF-8."),
)
_ARRAY = (
    "is one JSON array. JSONL has one object a line, without brackets around the rows or commas "
    "between them: convert it with `jq -c '.[]' FILE`."
)
_PRETTY = (
    "is JSON spread over several lines. JSONL has each row on one line: convert it with "
    "`jq -c . FILE`."
)


def of_head(head: bytes) -> tuple[str, str] | None:
    """Return code and message for the first bytes of a file; None if they may be JSONL."""
    for magic, code, message in _MAGIC:
        if head.startswith(magic):
            return f"file_is_{code}", f"The file {message}"
    if head.removeprefix(_BOM).lstrip(b" \t").startswith(b"["):  # on the first line
        return "file_is_json_array", f"The file {_ARRAY}"
    return None


def of_first_line(line: bytes) -> tuple[str, str] | None:
    """Return code and message for a first line that is no row; None if unknown."""
    text = line.strip()
    if text.startswith(b"["):
        return "file_is_json_array", f"The file {_ARRAY}"
    if text in (b"{", b'{"messages": [', b'{"messages":['):
        return "file_is_pretty_json", f"The file {_PRETTY}"
    if text[:1] in (b"{", b"}", b"]") or not any(mark in text for mark in b",;\t"):
        return None
    excerpt = text[:60].decode("ascii", "replace")
    if not excerpt.isprintable() and "\t" not in excerpt:
        return None
    message = f"The file looks like CSV: its first line is {excerpt!r}. Write each example as one "
    return "file_is_csv", f"{message}line of JSON: {_ROW}"
