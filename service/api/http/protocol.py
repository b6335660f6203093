"""uvicorn's HTTP protocol with limits on a connection before its sender is authenticated.

uvicorn limits neither the size of a head, nor how slowly it comes, nor how many requests a client
sends ahead of the answers. A connection checks its times only in ``check``, which the server
calls every second: a timer for each request would cost more than all the limits together.
"""

import asyncio
import json
import logging
from dataclasses import dataclass
from functools import partial
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from service.domain.errors import HeadTooLarge, InvalidRequest, RequestTimedOut, ServiceError

_MAX_PIECE_BYTES = 16 * 1024  # bytes parsed at a time, at most
_HEAD_END = b"\r\n\r\n"
# Without uvicorn's warnings: bad requests of strangers would fill the log.
_LOG = logging.getLogger("uvicorn.error.requests")
_LOG.setLevel(logging.ERROR)


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """Limits of one connection. Times are in seconds, sizes in bytes."""

    connections: int = 32_768
    headers: int = 100
    head_bytes: int = 64 * 1024
    head_seconds: float = 20.0  # from the last answer to the end of the next head
    silent_seconds: float = 30.0  # within a body
    unread_bytes: int = 64 * 1024**2  # of a body after its answer
    unread_seconds: float = 10.0
    unsent_seconds: float = 60.0  # in which a client takes nothing of its answer
    pipelined: int = 8  # requests that wait for the answer of another one
    backlog_bytes: int = 1024**2  # received, and not parsed before an answer is sent


DEFAULT_LIMITS = ConnectionLimits()


def make_protocol(limits: ConnectionLimits = DEFAULT_LIMITS) -> Any:  # noqa: ANN401 - uvicorn wants a class
    """Return what uvicorn's ``Config`` takes as ``http``."""
    return partial(LimitedProtocol, limits=limits)


class LimitedProtocol(HttpToolsProtocol):
    """One connection, with limits on its size, times and requests."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: ConnectionLimits,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.logger = _LOG
        self._limits = limits
        self._backlog = b""  # received and not parsed yet
        self._in_body = False
        self._has_parser_output = False  # the parser has handed on what it held
        self._parser_held_bytes = 0  # that the parser holds: of an unfinished head or trailer
        self._refusal: ServiceError | None = None
        self._is_refused = False
        self._unread_bytes = 0  # of a body whose request is answered
        self._unsent_bytes = 0
        self._idle_since = self._last_received_at = self._sent_at = self.loop.time()

    # --- what the transport calls ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        """Abort the connection if there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse the data, unless too many requests wait."""
        self._last_received_at = self.loop.time()
        self._unset_keepalive_if_required()
        if self._is_refused or self._is_unread():
            self._unread_bytes += len(data)
            if self._unread_bytes > self._limits.unread_bytes:
                self.transport.abort()
            if self._is_refused:
                return
        self._backlog += data
        if len(self._backlog) > self._limits.backlog_bytes:
            self.transport.abort()
        else:
            self._parse()

    def _parse(self) -> None:
        """Feed the parser piece by piece: no piece holds the ends of two heads."""
        received, start = self._backlog, 0
        while start < len(received) and len(self.pipeline) < self._limits.pipelined:
            if self.transport.is_closing() or self._is_refused:
                start = len(received)
                break
            position = received.find(_HEAD_END, start, start + _MAX_PIECE_BYTES)
            end = position + len(_HEAD_END) if position >= 0 else start + _MAX_PIECE_BYTES
            self._feed(received[start:end])
            start = end
        self._backlog = received[start:]
        if self._backlog:
            self.flow.pause_reading()

    def _feed(self, piece: bytes) -> None:
        self._has_parser_output = False
        super().data_received(piece)
        held = 0 if self._has_parser_output else self._parser_held_bytes + len(piece)
        self._parser_held_bytes = held
        if self._parser_held_bytes > self._limits.head_bytes:
            self._refuse(self._too_large())

    # --- what the parser calls -------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count the header; an error raised here ends the parsing."""
        if len(self.headers) >= self._limits.headers:
            self._refusal = error = self._too_large()
            raise error
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin the body, if there is one."""
        self._has_parser_output, self._unread_bytes = True, 0
        super().on_headers_complete()
        self._in_body = True

    def on_body(self, body: bytes) -> None:
        """Pass the body on, or drop it after the answer."""
        self._has_parser_output = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Wait for the next head."""
        self._has_parser_output, self._in_body = True, False
        self._idle_since = self.loop.time()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Resume parsing, as one request fewer waits."""
        self._idle_since = self.loop.time()
        super().on_response_complete()
        if self._backlog and not self.transport.is_closing():
            self.loop.call_soon(self._resume_parsing)

    def _resume_parsing(self) -> None:
        if not self.transport.is_closing():
            self._parse()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that the parser rejected; uvicorn calls it."""
        self._refuse(self._refusal or InvalidRequest(f"{msg} Send HTTP/1.1."))

    def _unsupported_upgrade_warning(self) -> None:
        """Ignore the requested upgrade without logging it.

        The parser reads nothing after such a request, so its connection ends with the answer.
        """
        if (cycle := self._newest_request()) is not None:
            cycle.keep_alive = False

    # --- what the server calls -------------------------------------------------------------------

    def check_times(self) -> None:
        """End the connection if it has exceeded one of its times."""
        now, limits = self.loop.time(), self._limits
        if self._is_stuck(now):
            self.transport.abort()
        elif self._is_refused or self._is_unread():
            if now - self._idle_since > limits.unread_seconds:
                self.transport.abort()
        elif self._is_answered():
            if now - self._idle_since > limits.head_seconds:
                self.transport.close()
        elif not self._in_body or self.flow.read_paused or self.cycle.waiting_for_100_continue:
            self._last_received_at = now  # the client is not what delays the request
        elif now - self._last_received_at > limits.silent_seconds:
            seconds = f"{limits.silent_seconds:g} seconds"
            message = f"The body stalled for {seconds}. Send the request again."
            self._refuse(RequestTimedOut(message))

    def _is_stuck(self, now: float) -> bool:
        """Return whether the client has not read waiting data for too long."""
        unsent = self.transport.get_write_buffer_size()
        if unsent == 0 or unsent != self._unsent_bytes:
            self._unsent_bytes, self._sent_at = unsent, now
        return now - self._sent_at > self._limits.unsent_seconds

    def _is_answered(self) -> bool:
        cycle = self._newest_request()
        return cycle is None or (cycle.response_complete and not self.pipeline)

    def _is_unread(self) -> bool:
        """Return whether the body of an answered request is still arriving."""
        cycle = self._newest_request()
        return self._in_body and cycle is not None and cycle.response_complete

    def _newest_request(self) -> RequestResponseCycle | None:
        """Return the newest request; None before the first."""
        return self.cycle

    def _too_large(self) -> HeadTooLarge:
        limits = self._limits
        return HeadTooLarge(
            f"The request has more than {limits.headers} headers, or more than {limits.head_bytes} "
            "bytes before its body. Send fewer and shorter headers."
        )

    def _refuse(self, error: ServiceError) -> None:
        """Answer outside the app if no other answer is under way, and accept no more requests.

        The connection stays open for a moment: closing it while the client still sends resets it,
        and the client may never see the answer.
        """
        if self.transport.is_closing() or self._is_refused:
            return
        may_answer = self._is_answered() or (self._in_body and not self.cycle.response_started)
        self._is_refused, self._backlog, self._idle_since = True, b"", self.loop.time()
        if (cycle := self._newest_request()) is not None:
            cycle.disconnected = True
            cycle.message_event.set()
        if self.pipeline or not may_answer or not self.transport.can_write_eof():
            self.transport.abort()
            return
        self.flow.resume_reading()
        self.transport.write(_answer(error, self.server_state.default_headers))
        self.transport.write_eof()


def _answer(error: ServiceError, extra_headers: list[tuple[bytes, bytes]]) -> bytes:
    body = json.dumps(error.as_envelope()).encode()
    headers = [
        *extra_headers,
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    head = b"".join(b"%s: %s\r\n" % header for header in headers)
    return STATUS_LINE[error.status] + head + b"\r\n" + body
