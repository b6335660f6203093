"""The sink in Python, for machines without a C compiler; it answers like `sink.c` but slower.

Run it with `python -m bench.checkpoint.slow_sink check|ignore [CERTIFICATE.pem]`. Tests hold both
programs to the same answers.
"""

import base64
import itertools
import json
import re
import socketserver
import ssl
import sys
import threading
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from awscrt import checksums

PIECE = 1 << 20
ONE_OF_A_LIST = re.compile(r"<(Latest|Uncommitted|Committed)>([^<]*)</")


@dataclass(frozen=True)
class SinkBlob:
    """One committed blob."""

    parts: dict[str, bytearray]  # parts by block id
    metadata: dict[str, str]
    etag: str
    modified: str = field(default_factory=lambda: formatdate(usegmt=True))

    @property
    def size(self) -> int:
        """Size of all parts, in bytes."""
        return sum(map(len, self.parts.values()))


@dataclass
class Store:
    """Blobs, uncommitted blocks and byte counters of the sink."""

    checks: bool
    blobs: dict[str, SinkBlob] = field(default_factory=dict)
    staged: dict[str, dict[str, bytearray]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    bytes_in: int = 0
    bytes_out: int = 0

    def fresh(self, parts: dict[str, bytearray], metadata: dict[str, str]) -> SinkBlob:
        """Return a blob with a new ETag."""
        return SinkBlob(parts, metadata, f'"0x{next(self.numbers):X}"')


class Refused(Exception):
    """Raised for a request that fails, with the HTTP status and Azure's error code."""

    def __init__(self, status: HTTPStatus, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


class Handler(BaseHTTPRequestHandler):
    """Handler of one HTTP connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    store: Store

    def log_message(self, *args: object) -> None:
        """Log nothing."""

    def parse_request(self) -> bool:
        """Parse the request, and split its URL into name and query."""
        if not super().parse_request():
            return False
        parts = urlsplit(self.path)
        self.name = unquote(parts.path)
        self.query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        return True

    def do_PUT(self) -> None:
        """Answer Put Block, Put Block List, Put Blob, Copy Blob and Create Container."""
        body = self._body()
        self._respond(self._put, body)

    def do_GET(self) -> None:
        """Answer with a blob, a range of it, a listing or the sink's byte counters."""
        if self.name == "/stats":
            stats = {"bytes_in": self.store.bytes_in, "bytes_out": self.store.bytes_out}
            self._send_response(HTTPStatus.OK, {}, json.dumps(stats).encode())
        else:
            self._respond(self._get)

    do_HEAD = do_GET  # noqa: N815

    def do_DELETE(self) -> None:
        """Delete a blob, or all blobs of a container."""
        self._respond(self._delete)

    def _respond(self, act: Any, *args: object) -> None:  # noqa: ANN401
        try:
            act(*args)
        except Refused as e:
            inner = f"<Code>{e.code}</Code><Message>{e.code}</Message>"
            text = f"<?xml version='1.0'?><Error>{inner}</Error>".encode()
            kind = {"x-ms-error-code": e.code, "Content-Type": "application/xml"}
            self._send_response(e.status, kind, text if self.command != "HEAD" else b"")

    def _put(self, body: bytearray) -> None:
        crc_headers = self._verify(body)
        comp, kind = self.query.get("comp", ""), self.headers.get("x-ms-blob-type")
        if self.query.get("restype") == "container":
            self._send_response(
                HTTPStatus.CREATED, {"ETag": '"0x0"', "Last-Modified": formatdate(usegmt=True)}
            )
        elif comp == "block":
            with self.store.lock:
                self.store.staged.setdefault(self.name, {})[self.query["blockid"]] = body
            self._send_response(HTTPStatus.CREATED, crc_headers)
        elif comp == "blocklist":
            self._publish(self._select_blocks(body.decode()), HTTPStatus.CREATED)
        elif kind == "BlockBlob":
            self._publish({"": body}, HTTPStatus.CREATED, crc_headers)
        elif source := self.headers.get("x-ms-copy-source"):
            copied = self._find_blob(unquote(urlsplit(source).path)).parts
            copy_headers = {"x-ms-copy-id": "0", "x-ms-copy-status": "success"}
            self._publish(copied, HTTPStatus.ACCEPTED, copy_headers)
        else:
            raise Refused(HTTPStatus.NOT_IMPLEMENTED, "NotImplemented")

    def _verify(self, body: bytearray) -> dict[str, str]:
        self.store.bytes_in += len(body)
        if not self.store.checks:
            return {}
        crc = base64.b64encode(checksums.crc64nvme(body).to_bytes(8, "little")).decode()
        if self.headers.get("x-ms-content-crc64", crc) != crc:
            raise Refused(HTTPStatus.BAD_REQUEST, "Crc64Mismatch")
        return {"x-ms-content-crc64": crc}

    def _select_blocks(self, text: str) -> dict[str, bytearray]:
        staged = self.store.staged.get(self.name, {})
        old = self.store.blobs[self.name].parts if self.name in self.store.blobs else {}
        sources = {"Latest": old | staged, "Uncommitted": staged, "Committed": old}
        try:
            return {id_: sources[kind][id_] for kind, id_ in ONE_OF_A_LIST.findall(text)}
        except KeyError:
            raise Refused(HTTPStatus.BAD_REQUEST, "InvalidBlockList") from None

    def _publish(
        self, parts: dict[str, bytearray], status: HTTPStatus, headers: dict[str, str] | None = None
    ) -> None:
        prefix = "x-ms-meta-"
        metadata = {k.lower(): v for k, v in self.headers.items() if k.lower().startswith(prefix)}
        with self.store.lock:
            self._conditions(self.store.blobs.get(self.name))
            blob = self.store.blobs[self.name] = self.store.fresh(parts, metadata)
            self.store.staged.pop(self.name, None)
        self._send_response(
            status, {"ETag": blob.etag, "Last-Modified": blob.modified, **(headers or {})}
        )

    def _conditions(self, existing: SinkBlob | None) -> None:
        missing, match = self.headers.get("If-None-Match"), self.headers.get("If-Match")
        # Quotes may be missing.
        etags = ("*", existing.etag, existing.etag.strip('"')) if existing else ()
        if existing and missing == "*":
            raise Refused(HTTPStatus.CONFLICT, "BlobAlreadyExists")
        if (missing and missing in etags) or (match and match not in etags):
            raise Refused(HTTPStatus.PRECONDITION_FAILED, "ConditionNotMet")

    def _find_blob(self, name: str) -> SinkBlob:
        blob = self.store.blobs.get(name)
        if blob is None:
            raise Refused(HTTPStatus.NOT_FOUND, "BlobNotFound")
        return blob

    def _get(self) -> None:
        if self.query.get("restype") == "container":
            listing = self._listing() if self.query.get("comp") == "list" else b""
            kind = {"Content-Type": "application/xml", "ETag": '"0x0"'}
            self._send_response(
                HTTPStatus.OK, kind | {"Last-Modified": formatdate(usegmt=True)}, listing
            )
            return
        blob = self._find_blob(self.name)
        self._conditions(blob)
        headers = {"ETag": blob.etag, "Last-Modified": blob.modified, **blob.metadata}
        headers |= {"x-ms-blob-type": "BlockBlob", "Content-Type": "application/octet-stream"}
        range_header = self.headers.get("x-ms-range") or self.headers.get("Range")
        first, _, last = (range_header or "bytes=0-").removeprefix("bytes=").partition("-")
        start, end = int(first), min(int(last or blob.size) + 1, blob.size)
        if range_header and start >= blob.size:
            raise Refused(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, "InvalidRange")
        if range_header:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{blob.size}"
        self._head(
            HTTPStatus.PARTIAL_CONTENT if range_header else HTTPStatus.OK, headers, end - start
        )
        if self.command == "GET":
            self._send(blob, start, end)

    def _send(self, blob: SinkBlob, start: int, end: int) -> None:
        at = 0
        for part in blob.parts.values():
            view = memoryview(part)[max(start - at, 0) : max(end - at, 0)]
            for piece in range(0, len(view), PIECE):
                self.wfile.write(view[piece : piece + PIECE])
            at += len(part)
        self.store.bytes_out += end - start

    def _listing(self) -> bytes:
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter", "")
        base, lines, seen = f"{self.name.rstrip('/')}/", [], set()
        with self.store.lock:
            blobs = sorted(self.store.blobs.items())
        for path, blob in blobs:
            name = path.removeprefix(base)
            if not path.startswith(base + prefix):
                continue
            head, cut, _ = name[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            if not cut:
                lines.append(_described(name, blob))
            elif (folder := f"{prefix}{head}{cut}") not in seen:
                seen.add(folder)
                lines.append(f"<BlobPrefix><Name>{escape(folder)}</Name></BlobPrefix>")
        inside = f"<Blobs>{''.join(lines)}</Blobs><NextMarker/>"
        return f"<?xml version='1.0'?><EnumerationResults>{inside}</EnumerationResults>".encode()

    def _delete(self) -> None:
        with self.store.lock:
            if self.query.get("restype") == "container":
                for mapping in (self.store.blobs, self.store.staged):
                    for name in [n for n in mapping if n.startswith(f"{self.name}/")]:
                        del mapping[name]
            else:
                self._conditions(self._find_blob(self.name))
                del self.store.blobs[self.name]
        self._send_response(HTTPStatus.ACCEPTED, {})

    def _body(self) -> bytearray:
        body = bytearray(int(self.headers.get("Content-Length", 0)))
        into = memoryview(body)
        while into and (count := self.rfile.readinto(into)):
            into = into[count:]
        return body

    def _send_response(
        self, status: HTTPStatus, headers: dict[str, str], body: bytes = b""
    ) -> None:
        self._head(status, headers, len(body))
        self.wfile.write(body)

    def _head(self, status: HTTPStatus, headers: dict[str, str], length: int) -> None:
        self.send_response_only(status)
        for name, value in {"x-ms-version": "2026-06-06", "x-ms-request-id": "0"}.items():
            self.send_header(name, value)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()


class RawHandler(socketserver.StreamRequestHandler):
    """Raw protocol: 'S' + length receives bytes and answers 'k'; 'R' + length sends bytes."""

    def handle(self) -> None:
        """Answer requests until the client closes the connection."""
        scratch = memoryview(bytearray(PIECE))
        while order := self.rfile.read(9):
            remaining = int.from_bytes(order[1:], "little")
            while remaining:
                piece = scratch[: min(remaining, PIECE)]
                if order[:1] == b"R":
                    self.wfile.write(piece)
                    remaining -= len(piece)
                else:
                    remaining -= self.rfile.readinto(piece)
            if order[:1] == b"S":
                self.wfile.write(b"k")


class SinkServer(socketserver.ThreadingTCPServer):
    """One listening port of the sink."""

    daemon_threads = True
    request_queue_size = 512
    tls: ssl.SSLContext | None = None

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Serve a connection in its own thread, which also does the TLS handshake."""
        if self.tls:
            request = self.tls.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Ignore errors of connections that clients closed."""


def main(arguments: list[str]) -> int:
    """Serve until standard input ends."""
    store = Store(checks=arguments[0] == "check")
    handler = type("Bound", (Handler,), {"store": store})
    kinds: list[Any] = [handler, RawHandler]
    contexts: list[ssl.SSLContext | None] = [None, *map(_context, arguments[1:2])]
    ports = [_opened(kind, context) for context in contexts for kind in kinds]
    print("sink ready:", *ports, flush=True)
    sys.stdin.read()
    return 0


def _opened(kind: Any, context: ssl.SSLContext | None) -> int:  # noqa: ANN401
    server = SinkServer(("127.0.0.1", 0), kind)
    server.tls = context
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return int(server.server_address[1])


@cache
def _context(certificate: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def _described(name: str, blob: SinkBlob) -> str:
    metadata = {key.removeprefix("x-ms-meta-"): value for key, value in blob.metadata.items()}
    elements = "".join(f"<{key}>{escape(value)}</{key}>" for key, value in metadata.items())
    etag = blob.etag.strip('"')
    return (
        f"<Blob><Name>{escape(name)}</Name><Properties><Last-Modified>{blob.modified}"
        f"</Last-Modified><Etag>{etag}</Etag><Content-Length>{blob.size}</Content-Length>"
        "<BlobType>BlockBlob</BlobType></Properties>"
        f"<Metadata>{elements}</Metadata></Blob>"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
