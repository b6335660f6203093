"""The way out of one VM: an HTTP proxy in threads of its init, which can be cut.

It lives and dies with the VM, not with the emulator: Azure's front may fail without cutting
a machine off. Plain HTTP is passed on request by request, for one connection of a client
may serve several hosts; everything else goes through CONNECT. Standard library only.
"""

import socket
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from urllib.parse import urlsplit

from emulator.faults.harm import Harm

CHUNK = 256 * 1024
LONGEST_LINE = 65536
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # linger for no time: the other side sees RST
_PROXY_HEADERS = (b"proxy-connection", b"proxy-authorization", b"proxy-authenticate")


class ConnectionBroken(Exception):
    """This connection ends here."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The head of one request, ready to be passed on."""

    address: str  # HOST:PORT
    tunnel: bool
    head: bytes
    length: int  # of the body; -1: it comes in chunks


class Proxy:
    """Listens on loopback; ``exempt`` (HOST:PORT) is never cut: the metadata service."""

    def __init__(self, exempt: str) -> None:
        self._exempt = exempt
        self._harm = Harm()
        self._changed = threading.Condition()
        self._lines: set[_Line] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def start(self) -> None:
        """Serve until the process ends."""
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def obey(self, harm: Harm) -> None:
        """Cut and mend. What is under way hangs or breaks; what hung goes on when mended."""
        with self._changed:
            self._harm = harm
            self._changed.notify_all()
            broken = [line for line in self._lines if self._cut(line.address) == "reset"]
        for line in broken:
            line.reset()

    def admit(self, address: str) -> None:
        """Wait until traffic with this address may pass; raise ConnectionBroken to break it."""
        with self._changed:
            while mode := self._cut(address):
                if mode == "reset":
                    raise ConnectionBroken
                self._changed.wait()

    def _cut(self, address: str) -> str:
        return "" if address in ("", self._exempt) else self._harm.cut(address)

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _in_thread(lambda client=client: self._serve(client))  # type: ignore[misc] # mypy takes the default for a parameter

    def _serve(self, client: socket.socket) -> None:
        line = _Line(client, self.admit)
        with self._changed:
            self._lines.add(line)
        try:
            line.serve()
        finally:
            with self._changed:
                self._lines.discard(line)


class _Line:
    """One connection of a client, and the one behind it that serves its present address."""

    def __init__(self, client: socket.socket, admit: Callable[[str], None]) -> None:
        self.address = ""
        self._client = client
        self._admit = admit
        self._upstream: socket.socket | None = None
        self._answers: threading.Thread | None = None

    def serve(self) -> None:
        """Pass on one request after the other until either side ends or breaks."""
        with self._client, self._client.makefile("rb") as stream:
            try:
                while (request := read_request(stream)) is not None:
                    _acknowledge(self._client)
                    self._pass_on(request, stream)
                self._end_tunnel()
            except (ConnectionBroken, OSError, ValueError):  # ValueError: what came is not HTTP
                self.reset()
            finally:
                self._close_upstream()

    def reset(self) -> None:
        """Break both sides from one moment to the next."""
        for side in (self._client, self._upstream):
            if side is not None:
                with suppress(OSError):
                    side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                    side.shutdown(socket.SHUT_RDWR)  # wakes up blocked readers and writers

    def _pass_on(self, request: Request, stream: BufferedReader) -> None:
        if request.address != self.address:
            self._close_upstream()
            self.address = request.address
        self._admit(request.address)
        if self._upstream is None:
            self._upstream = self._connect(request.address)
            if request.tunnel:
                self._client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            upstream = self._upstream
            self._answers = _in_thread(lambda: self._pass_answers(upstream))
        if request.tunnel:
            self._pass(stream, self._upstream, -1)
            return
        self._upstream.sendall(request.head)
        if request.length < 0:
            self._pass_chunks(stream, self._upstream)
        else:
            self._pass(stream, self._upstream, request.length)

    def _connect(self, address: str) -> socket.socket:
        host, _, port = address.rpartition(":")
        upstream = socket.create_connection((host.strip("[]"), int(port)), timeout=30)
        upstream.settimeout(None)
        upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return upstream

    def _pass_answers(self, upstream: socket.socket) -> None:
        """Bytes of the host, until it ends: then the client is to see the end as well."""
        try:
            with upstream.makefile("rb") as stream:
                self._pass(stream, self._client, -1)
        except (ConnectionBroken, OSError, ValueError):
            self.reset()
        if self._upstream is upstream:  # the line has not gone on to another host
            with suppress(OSError):
                self._client.shutdown(socket.SHUT_RDWR)

    def _pass(self, source: BufferedReader, sink: socket.socket, length: int) -> None:
        """Pass this number of bytes, or (-1) all that come."""
        buffer = memoryview(bytearray(CHUNK if length < 0 else min(CHUNK, length)))
        while length:
            space = buffer if length < 0 else buffer[:length]
            if not (count := source.readinto1(space)):
                if length > 0:
                    raise ConnectionBroken  # the client is gone in the middle of a request
                return
            if sink is self._upstream:
                _acknowledge(self._client)
            self._admit(self.address)
            sink.sendall(space[:count])
            length -= count if length > 0 else 0

    def _pass_chunks(self, stream: BufferedReader, upstream: socket.socket) -> None:
        size = 1
        while size:
            line = _line(stream)
            size = int(line.partition(b";")[0], 16)
            upstream.sendall(line)
            if size:
                self._pass(stream, upstream, size + 2)
        while (line := _line(stream)).strip():
            upstream.sendall(line)
        upstream.sendall(line)

    def _end_tunnel(self) -> None:
        """Close the tunnel for writing, and wait for what the host still sends."""
        if self._upstream is not None and self._answers is not None:
            with suppress(OSError):
                self._upstream.shutdown(socket.SHUT_WR)
            self._answers.join()

    def _close_upstream(self) -> None:
        """Hang up on the present address."""
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            with suppress(OSError):
                upstream.shutdown(socket.SHUT_RDWR)
            if self._answers is not None:
                self._answers.join()
            upstream.close()


def read_request(stream: BufferedReader) -> Request | None:
    """Return the next request; None at the end. Raise ConnectionBroken if it is malformed."""
    if not (first := stream.readline(LONGEST_LINE)):
        return None
    method, target, version = [*first.split(), b"", b"", b""][:3]
    headers = []
    while (line := _line(stream)).strip():
        headers.append(line)
    if method == b"CONNECT":
        return Request(address=target.decode("latin-1"), tunnel=True, head=b"", length=-1)
    url = urlsplit(target.decode("latin-1"))
    if url.scheme != "http" or url.hostname is None:
        raise ConnectionBroken
    path = target.partition(b"://")[2]
    path = b"/" + path.partition(b"/")[2]
    forwarded = [line for line in headers if not line.lower().startswith(_PROXY_HEADERS)]
    return Request(
        address=f"{url.hostname}:{url.port or 80}",
        tunnel=False,
        head=b"".join([method, b" ", path, b" ", version, b"\r\n", *forwarded, b"\r\n"]),
        length=_length(forwarded),
    )


def _length(headers: list[bytes]) -> int:
    for line in headers:
        name, _, value = line.lower().partition(b":")
        if name == b"transfer-encoding" and b"chunked" in value:
            return -1
        if name == b"content-length":
            return int(value)
    return 0


def _line(stream: BufferedReader) -> bytes:
    if not (line := stream.readline(LONGEST_LINE)).endswith(b"\n"):
        raise ConnectionBroken
    return line


def _acknowledge(client: socket.socket) -> None:
    """Now and not in 40 ms: urllib3 has Nagle's algorithm on towards proxies, and waits for it."""
    if sys.platform == "linux":
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def _in_thread(call: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread
