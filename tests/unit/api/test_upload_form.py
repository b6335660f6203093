"""The form of an upload, from senders who mean no good: always a file or a refusal."""

import asyncio

from fastapi import Request
from hypothesis import example, given, settings
from hypothesis import strategies as st
from starlette.types import Message

from service.api.http.upload_form import UploadForm
from service.domain.errors import InvalidRequest

DISPOSITION = b"Content-Disposition: form-data; "
PIECES = (
    b"--b\r\n",
    b"\r\n--b\r\n",
    b"\r\n--b--\r\n",
    b"\r\n\r\n",
    b"\r\n",
    b"\r",
    b"--b",
    DISPOSITION + b'name="file"; filename="a.jsonl"',
    DISPOSITION + b'name="file"; filename="../../\xff\xfe"',
    DISPOSITION + b'name="purpose"',
    DISPOSITION + b'name="',
    DISPOSITION + b"name=file; filename*0*=utf-8''%e2; filename*99999*=x; filename*=''",
    DISPOSITION + b'name="expires_after[anchor]"',
    DISPOSITION + b'name="expires_after[seconds]"',
    b"created_at",
    b"7200",
    b"Content-Transfer-Encoding: base64",
    b"Content-Type: text/plain; charset=utf-16",
    b"fine-tune",
    b"{}",
    b":",
    b"x" * 5000,
)
GOOD = b"".join(
    (PIECES[0], PIECES[9], b"\r\n\r\nfine-tune", PIECES[1], PIECES[7], b"\r\n\r\n{}", PIECES[2])
)


def form_of(body: bytes, size: int) -> UploadForm:
    pieces = [body[i : i + size] for i in range(0, len(body), size)]

    async def receive() -> Message:
        piece = pieces.pop(0) if pieces else b""
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    headers = [(b"content-type", b"multipart/form-data; boundary=b")]
    return UploadForm(Request({"type": "http", "headers": headers}, receive))


async def read(body: bytes, size: int) -> tuple[bytes, str | None]:
    form = form_of(body, size)
    await form.find_file()
    content = b"".join([chunk async for chunk in form.chunks()])
    return content, form.purpose


def outcome(body: bytes, size: int) -> tuple[bytes, str | None] | str:
    try:
        return asyncio.run(read(body, size))
    except InvalidRequest as refused:
        return refused.code


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(PIECES) | st.binary(max_size=8), max_size=12).map(b"".join),
    st.integers(1, 40),
)
@example(GOOD, 1)
@example(GOOD[:-6], 3)
def test_any_body_is_a_file_or_a_refusal_however_it_is_cut(body: bytes, size: int) -> None:
    in_one_piece = outcome(body, len(body) or 1)
    in_pieces = outcome(body, size)

    assert isinstance(in_one_piece, str) == isinstance(in_pieces, str)
    if not isinstance(in_one_piece, str):
        assert in_one_piece == in_pieces


def test_a_good_form_is_read() -> None:
    assert outcome(GOOD, 7) == (b"{}", "fine-tune")
