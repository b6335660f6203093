"""Blocks to and from a Blob Storage that refuses, breaks off, and does not know everything."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from awscrt import checksums

from trainer.supervisor.blob.blocks import BlockClient
from trainer.supervisor.blob.container import BlobAccess
from trainer.supervisor.blob.errors import AccessRefusedError, BlobError, BlobUnavailableError

DATA = memoryview(bytes(range(256)) * 20_000)


@dataclass
class Store:
    """Answers as it is told: a status and a code each, then as Blob does."""

    answers: list[tuple[int, str]] = field(default_factory=list)
    heard: list[dict[str, str]] = field(default_factory=list)
    breaks_off_after: int | None = None
    url: str = ""

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        self.heard.append({k.lower(): v for k, v in request.headers.items()})
        request.rfile.read(int(request.headers.get("Content-Length", 0)))
        status, code = self.answers.pop(0) if self.answers else (0, "")
        if status:
            self._say(request, status, {"x-ms-error-code": code}, b"")
        elif request.command == "PUT":
            self._say(request, 201, {}, b"")
        else:
            span = request.headers["x-ms-range"].removeprefix("bytes=").split("-")
            body = bytes(DATA[int(span[0]) : int(span[1]) + 1])
            headers = {"Content-Range": f"bytes {span[0]}-{span[1]}/{len(DATA)}"}
            self._say(request, 206, headers, body)

    def _say(
        self, request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes
    ) -> None:
        request.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body[: self.breaks_off_after])
        if self.breaks_off_after is not None:
            self.breaks_off_after = None
            request.close_connection = True


@contextmanager
def serving(store: Store) -> Iterator[Store]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            store.handle(self)

        def do_GET(self) -> None:
            store.handle(self)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serves = threading.Thread(target=server.serve_forever)
        serves.start()
        store.url = f"http://127.0.0.1:{server.server_address[1]}/job/blob?sv=1&sig=secret"
        try:
            yield store
        finally:
            server.shutdown()
            serves.join()


@pytest.fixture
def store() -> Iterator[Store]:
    with serving(Store()) as server:
        yield server


@pytest.fixture
def blocks() -> Iterator[BlockClient]:
    block_client = BlockClient(4)
    yield block_client
    block_client.close()


def got(blocks: BlockClient, url: str, offset: int, length: int) -> bytes:
    buffer = bytearray(length)

    def take(chunk: memoryview, at: int) -> None:
        buffer[at - offset : at - offset + len(chunk)] = chunk

    crc, data = blocks.get_range(url, offset, length, take)
    assert data == len(DATA)
    assert crc == checksums.crc64nvme(bytes(buffer))
    return bytes(buffer)


def test_a_block_goes_with_the_checksum_that_blob_computes(
    store: Store, blocks: BlockClient
) -> None:
    crc = blocks.put_block(store.url, "one", memoryview(b"123456789"))

    assert f"{crc:016x}" == "ae8b14860a799888"
    assert store.heard[0]["x-ms-content-crc64"] == "iJh5CoYUi64="


@pytest.mark.parametrize("code", ["ServerBusy", "OperationTimedOut", "InternalError"])
async def test_a_store_that_is_busy_is_asked_again(
    store: Store, access: BlobAccess, code: str
) -> None:
    store.answers = [(503, code), (500, code)]

    await access.call_with_retries(lambda: access.blocks.put_block(store.url, "one", DATA))

    assert len(store.heard) == 3


async def test_a_connection_that_breaks_off_is_taken_up_again(
    store: Store, access: BlobAccess
) -> None:
    store.breaks_off_after = 1_000_000

    data = await access.call_with_retries(lambda: got(access.blocks, store.url, 0, len(DATA)))

    assert data == bytes(DATA)
    assert len(store.heard) == 2


def test_bytes_that_changed_on_their_way_are_an_error(store: Store, blocks: BlockClient) -> None:
    store.answers = [(400, "Crc64Mismatch")]

    with pytest.raises(BlobError, match="/job/blob: 400 Crc64Mismatch"):
        blocks.put_block(store.url, "one", DATA)


def test_a_store_that_knows_no_checksums_is_served_without(
    store: Store, blocks: BlockClient
) -> None:
    store.answers = [(500, "FeatureNotSupported")]
    for name in ("one", "two"):
        blocks.put_block(store.url, name, DATA)

    assert ["x-ms-content-crc64" in headers for headers in store.heard] == [True, False, False]


def test_a_refusal_never_tells_the_sas(store: Store, blocks: BlockClient) -> None:
    store.answers = [(403, "AuthenticationFailed"), (302, "")]

    with pytest.raises(AccessRefusedError) as error:
        blocks.put_block(store.url, "one", DATA)
    with pytest.raises(BlobError) as sent_elsewhere:
        blocks.put_block(store.url, "one", DATA)
    with pytest.raises(BlobUnavailableError) as caught:
        blocks.put_block("http://127.0.0.1:9/job/blob?sv=1&sig=secret", "one", DATA)

    assert not any("secret" in str(e.value) for e in (error, sent_elsewhere, caught))
