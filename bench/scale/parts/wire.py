"""Minimal HTTP client for thousands of nodes: one connection, one request at a time.

The client of a library uses more CPU than the service under test.
"""

import asyncio
from collections import deque

Answer = tuple[int, bytes]
_END = b"\r\n\r\n"
_LENGTH = b"content-length:"


class Wire(asyncio.Protocol):
    """One persistent connection, opened on demand."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Answer] | None = None
        self._data = b""

    async def request(self, method: str, path: str, token: str, body: str = "") -> Answer:
        """Send a request and return status and body; reconnect once after a closed connection."""
        text = (
            f"{method} {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {token}\r\n"
            f"content-length: {len(body)}\r\n\r\n{body}"
        ).encode()
        for last in (False, True):
            try:
                return await self._send(text)
            except ConnectionError:
                if last:
                    raise
        raise AssertionError("not reached")

    def close(self) -> None:
        """Close the connection."""
        if self._transport:
            self._transport.abort()

    async def _send(self, text: bytes) -> Answer:
        loop = asyncio.get_running_loop()
        if self._transport is None or self._transport.is_closing():
            self._transport, _ = await loop.create_connection(lambda: self, *self._address)
            self._data = b""
        self._answer = loop.create_future()
        self._transport.write(text)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        """Collect the answer, as asyncio.Protocol requires."""
        self._data += data
        head, end, body = self._data.partition(_END)
        if not end:
            return
        at = head.lower().find(_LENGTH)
        length = int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(body) >= length and self._answer and not self._answer.done():
            self._data = b""
            self._answer.set_result((int(head[9:12]), body))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        """Fail the pending request, as asyncio.Protocol requires."""
        self._transport = None
        if self._answer and not self._answer.done():
            self._answer.set_exception(ConnectionResetError("the service hung up"))


class Pool:
    """Connections that nodes share, like those of an ingress in front of the service."""

    def __init__(self, host: str, port: int, size: int) -> None:
        self._free = deque(Wire(host, port) for _ in range(size))
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def request(self, method: str, path: str, token: str, body: str = "") -> Answer:
        """Send a request over the next free connection."""
        while not self._free:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        wire = self._free.pop()
        try:
            return await wire.request(method, path, token, body)
        finally:
            self._free.append(wire)
            while self._waiting:
                turn = self._waiting.popleft()
                if not turn.done():
                    turn.set_result(None)
                    break
