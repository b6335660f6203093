"""Transfer blocks between this node and Blob by plain HTTP.

Azure's client copies each block several times: 2 to 3 CPU seconds for a GiB, against 0.2 to 0.5
here, and the CPU is the training's. So data goes by urllib3, directly from and to the caller's
memory; everything else uses Azure's client (`container.py`).
"""

import os
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import quote

import certifi
from awscrt import checksums
from urllib3 import BaseHTTPResponse, PoolManager, Timeout
from urllib3.exceptions import HTTPError

from trainer.supervisor.blob.errors import (
    BlobError,
    BlobUnavailableError,
    UnsupportedHeaderError,
    error_for_status,
    redact_sas,
)

API_VERSION = "2023-11-03"
PIECE = 2**20  # each gets READ_SECONDS of its own, so that a slow link is not a dead one
CONNECT_SECONDS, READ_SECONDS = 5, 30


@dataclass(frozen=True, kw_only=True)
class BlobRange:
    """A byte range of a blob, and the file that has it at the same offset."""

    url: str
    offset: int
    length: int
    path: Path
    etag: str = ""  # of the expected blob; another one is refused


class BlockClient:
    """HTTP connections for this many threads."""

    def __init__(self, threads: int) -> None:
        self._pools = PoolManager(
            maxsize=threads,
            retries=False,
            timeout=Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
            ssl_context=_ssl_context(),
        )
        self._thread_local = threading.local()
        self._sends_checksums = True  # Blob checks the data against our CRC

    def put_block(self, url: str, block_id: str, data: memoryview) -> int:
        """Upload a block (Put Block); return its CRC-64/NVME, which Blob has checked.

        It may be repeated. Raises BlobError.
        """
        crc = int(checksums.crc64nvme(data))
        check = {"x-ms-content-crc64": b64encode(crc.to_bytes(8, "little")).decode()}
        target = f"{url}&comp=block&blockid={quote(b64encode(block_id.encode()), safe='')}"
        try:
            self._put(target, check if self._sends_checksums else {}, data)
        except UnsupportedHeaderError:
            self._sends_checksums = False  # Azurite, older than 3.37
            self._put(target, {}, data)
        return crc

    def get_range(
        self,
        url: str,
        offset: int,
        length: int,
        take: Callable[[memoryview, int], object],
        etag: str = "",
    ) -> tuple[int, int]:
        """Read a range, passing each piece and its offset to ``take``, which must not keep it.

        Returns the range's CRC-64/NVME and the size of the blob. Raises BlobError; with ``etag``
        PreconditionFailedError when the blob has changed.
        """
        headers = {"x-ms-range": f"bytes={offset}-{offset + length - 1}"}
        if etag:
            headers["If-Match"] = f'"{etag}"'
        answer = self._send_request("GET", url, headers, None)
        try:
            blob_size = int(answer.headers.get("Content-Range", "/-1").rpartition("/")[2])
            crc, at, end = 0, offset, offset + length
            while piece := self._read(answer, end - at):
                crc = int(checksums.crc64nvme(piece, crc))
                take(piece, at)
                at += len(piece)
        finally:
            answer.close()  # a fully read body has returned its connection already
        if at < end:
            raise BlobUnavailableError(
                f"the connection broke off after {at - offset} of {length} bytes"
            )
        return crc, blob_size

    def _read(self, answer: BaseHTTPResponse, most: int) -> memoryview:
        """Read the next piece into this thread's scratch memory; empty at the end."""
        if not hasattr(self._thread_local, "scratch"):
            self._thread_local.scratch = bytearray(PIECE)
        scratch = memoryview(self._thread_local.scratch)[: min(PIECE, most)]
        try:
            return scratch[: answer.readinto(cast("bytearray", scratch)) if most else 0]
        except (HTTPError, OSError) as e:
            raise _unavailable(e) from None

    def _put(self, url: str, check: Mapping[str, str], data: memoryview) -> None:
        headers = {"Content-Length": str(len(data)), **check}
        self._send_request("PUT", url, headers, _pieces(data)).drain_conn()

    def close(self) -> None:
        """Close the connections."""
        self._pools.clear()

    def _send_request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: Iterable[bytes] | None,
    ) -> BaseHTTPResponse:
        try:
            answer = self._pools.request(
                method,
                url,
                body=body,
                headers={"x-ms-version": API_VERSION, **headers},
                preload_content=False,
                redirect=False,
            )
            if answer.status < 300:
                return answer
            answer.drain_conn()
        except (HTTPError, OSError) as e:
            raise _unavailable(e) from None
        code = answer.headers.get("x-ms-error-code") or answer.reason or ""
        raise error_for_status(url, answer.status, code)


def receive_range(blocks: BlockClient, blob_range: BlobRange) -> tuple[int, int]:
    """Read a range into its existing file; see `BlockClient.get_range`."""
    with blob_range.path.open("r+b", buffering=0) as file:

        def write(piece: memoryview, at: int) -> None:
            while piece:
                written = os.pwrite(file.fileno(), piece, at)
                piece, at = piece[written:], at + written

        return blocks.get_range(
            blob_range.url, blob_range.offset, blob_range.length, write, blob_range.etag
        )


def _pieces(data: memoryview) -> Iterable[bytes]:
    """Return views, although urllib3 asks for bytes: the socket takes either."""
    return (cast("bytes", data[at : at + PIECE]) for at in range(0, len(data), PIECE))


def _unavailable(error: Exception) -> BlobError:
    return BlobUnavailableError(f"{type(error).__name__}: {redact_sas(str(error))}")


def _ssl_context() -> ssl.SSLContext:
    """Trust the system's authorities and certifi's: a small image has none of its own."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context
