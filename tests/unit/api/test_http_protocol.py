import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from starlette.types import Message, Receive, Scope, Send
from uvicorn.server import ServerState

from service.api.http.protocol import ConnectionLimits, LimitedProtocol, make_protocol

LIMITS = ConnectionLimits()
GET = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 100\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n"
OK: tuple[Message, ...] = (
    {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]},
    {"type": "http.response.body", "body": b"ok"},
)
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Timed:
    """The loop, with a time that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the loop has
        return getattr(asyncio.get_running_loop(), name)


class Wire(asyncio.Transport):
    """A transport that keeps what is sent; ``unsent``: what the client has not taken yet."""

    def __init__(self) -> None:
        super().__init__()
        self.sent, self.unsent = b"", 0
        self.ended = self.closed = self.aborted = self.paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class Connection:
    """One connection to ``app``, and the requests that reached it."""

    def __init__(self, app: App, limits: ConnectionLimits = LIMITS) -> None:
        self.loop, self.wire, self.asked = Timed(), Wire(), 0

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            self.asked += 1
            await app(scope, receive, send)

        config = uvicorn.Config(counted, http=make_protocol(limits), ws="none", lifespan="off")
        config.load()
        make = make_protocol(limits)
        self.protocol: LimitedProtocol = make(config, ServerState(), {}, self.loop)
        self.protocol.connection_made(self.wire)

    async def send(self, data: bytes) -> None:
        """Let this come, and the app do what it can."""
        self.protocol.data_received(data)
        await self.turns()

    async def turns(self) -> None:
        for _ in range(100):
            await asyncio.sleep(0)

    def wait(self, seconds: float) -> None:
        """So much later the server looks at its connections; it does so every second."""
        for _ in range(int(seconds)):
            self.loop.now += 1
            self.protocol.check_times()

    @property
    def code(self) -> str:
        return str(json.loads(self.wire.sent.rpartition(b"\r\n\r\n")[2])["error"]["code"])


async def ok(scope: Scope, receive: Receive, send: Send) -> None:
    for message in OK:
        await send(message)


async def hang(scope: Scope, receive: Receive, send: Send) -> None:
    await asyncio.Event().wait()


async def reads(scope: Scope, receive: Receive, send: Send) -> None:
    while (message := await receive())["type"] == "http.request" and message["more_body"]:
        pass
    if message["type"] == "http.request":
        await ok(scope, receive, send)


async def test_a_head_that_never_ends_is_refused_at_64_kib() -> None:
    connection = Connection(ok)
    await connection.send(b"GET / HTTP/1.1\r\nx: ")
    for _ in range(7):
        assert not connection.wire.sent
        await connection.send(b"a" * 10_000)

    assert connection.wire.sent.startswith(b"HTTP/1.1 431 ")
    assert (connection.code, connection.wire.ended, connection.asked) == (
        "headers_too_large",
        True,
        0,
    )


async def test_a_head_of_many_megabytes_in_one_piece_is_not_parsed_to_its_end() -> None:
    connection = Connection(ok, ConnectionLimits(backlog_bytes=2**30))
    await connection.send(b"GET / HTTP/1.1\r\nx: " + b"a" * 16 * 1024**2 + b"\r\n\r\n")

    assert (connection.code, connection.asked) == ("headers_too_large", 0)


@pytest.mark.parametrize(("count", "status"), [(99, b"200"), (100, b"431")])
async def test_a_request_has_a_hundred_headers_at_most(count: int, status: bytes) -> None:
    connection = Connection(ok)
    many = b"".join(b"x-%d: 1\r\n" % number for number in range(count))
    await connection.send(b"GET / HTTP/1.1\r\nhost: h\r\n" + many + b"\r\n")

    assert connection.wire.sent.startswith(b"HTTP/1.1 " + status)


async def test_a_trailer_is_part_of_the_limit_as_well() -> None:
    connection = Connection(hang)
    await connection.send(CHUNKED + b"1\r\nx\r\n0\r\nx: ")
    for _ in range(8):
        await connection.send(b"a" * 10_000)

    assert connection.code == "headers_too_large"


async def test_a_body_may_be_larger_than_a_head() -> None:
    connection = Connection(reads)
    await connection.send(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 500000\r\n\r\n")
    for _ in range(5):
        await connection.send(b"\r\n\r\n" * 25_000)

    assert connection.wire.sent.startswith(b"HTTP/1.1 200 ")


async def test_what_is_no_http_is_answered_in_the_envelope_of_every_error() -> None:
    connection = Connection(ok)
    await connection.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")

    assert connection.wire.sent.startswith(b"HTTP/1.1 400 ")
    assert connection.code == "invalid_value"


async def test_a_client_that_sends_no_head_is_cut_after_20_seconds() -> None:
    connection = Connection(ok)
    connection.wait(20)
    assert not connection.wire.closed

    connection.wait(1)
    assert connection.wire.closed


@pytest.mark.parametrize("drop", [b"\r\n", b"x"], ids=["empty lines", "bytes of a head"])
async def test_a_head_that_comes_drop_by_drop_is_cut_after_20_seconds(drop: bytes) -> None:
    connection = Connection(ok)
    await connection.send(GET)
    if drop == b"x":
        await connection.send(b"GET /")
    for _ in range(21):
        assert not connection.wire.closed
        await connection.send(drop)
        connection.wait(1)

    assert connection.wire.closed
    assert connection.wire.sent.count(b"HTTP/1.1 200") == 1


async def test_a_connection_in_use_stays_for_as_long_as_it_is_used() -> None:
    connection = Connection(ok)
    for number in range(50):
        await connection.send(GET)
        connection.wait(10)
        assert connection.wire.sent.count(b"HTTP/1.1 200") == number + 1

    assert not connection.wire.closed


async def test_a_request_may_wait_long_for_its_answer() -> None:
    connection = Connection(hang)
    await connection.send(GET)
    connection.wait(3600)

    assert not connection.wire.closed


async def test_a_body_that_stops_coming_is_answered_408() -> None:
    connection = Connection(reads)
    await connection.send(POST + b"half")
    connection.wait(20)
    await connection.send(b"more")
    connection.wait(30)
    assert not connection.wire.sent

    connection.wait(1)
    assert connection.wire.sent.startswith(b"HTTP/1.1 408 ")
    assert (connection.code, connection.wire.ended) == ("request_timeout", True)


async def test_a_body_that_is_not_read_here_is_not_the_fault_of_its_client() -> None:
    connection = Connection(hang)
    await connection.send(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 500000\r\n\r\n")
    await connection.send(b"x" * 100_000)
    assert connection.wire.paused

    connection.wait(3600)
    assert not connection.wire.closed
    assert not connection.wire.sent


async def test_the_rest_of_a_refused_body_is_taken_for_10_seconds() -> None:
    connection = Connection(ok)
    await connection.send(POST)
    assert connection.wire.sent.startswith(b"HTTP/1.1 200 ")
    for _ in range(11):
        assert not connection.wire.closed
        await connection.send(b"x")
        connection.wait(1)

    assert connection.wire.aborted


async def test_64_mib_of_a_refused_body_are_taken_at_most() -> None:
    connection = Connection(ok, ConnectionLimits(unread_bytes=1000))
    await connection.send(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 5000\r\n\r\n")
    await connection.send(b"x" * 900)
    assert not connection.wire.closed

    await connection.send(b"x" * 900)
    assert connection.wire.aborted


async def test_8_requests_wait_at_most_and_the_others_are_not_parsed() -> None:
    connection, answers = Connection(hang), LIMITS.pipelined
    await connection.send(GET * 3500)

    assert (connection.asked, len(connection.protocol.pipeline), connection.wire.paused) == (
        1,
        answers,
        True,
    )


async def test_every_request_that_a_client_sends_ahead_is_answered() -> None:
    connection = Connection(ok)
    await connection.send(GET * 300)
    for _ in range(10):
        await connection.turns()

    assert connection.wire.sent.count(b"HTTP/1.1 200") == 300
    assert not connection.wire.closed


async def test_a_client_that_goes_on_sending_ahead_is_cut() -> None:
    connection = Connection(hang, ConnectionLimits(backlog_bytes=10_000))
    await connection.send(GET * 300)
    await connection.send(GET * 300)

    assert connection.wire.aborted


async def test_a_client_that_takes_nothing_of_its_answer_is_cut_after_a_minute() -> None:
    connection = Connection(hang)
    await connection.send(GET)
    connection.wire.unsent = 1000
    connection.wait(60)
    connection.wire.unsent = 999
    connection.wait(60)
    assert not connection.wire.closed

    connection.wait(2)
    assert connection.wire.aborted


async def test_a_connection_too_many_is_closed_at_once() -> None:
    connection = Connection(ok, ConnectionLimits(connections=0))

    assert connection.wire.aborted


async def test_an_upgrade_is_not_made_and_its_request_answered() -> None:
    connection = Connection(ok)
    await connection.send(
        b"GET / HTTP/1.1\r\nhost: h\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n"
    )

    assert connection.wire.sent.startswith(b"HTTP/1.1 200 ")
    assert connection.wire.closed
