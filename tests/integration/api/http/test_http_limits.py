import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Receive, Scope, Send

from bench import ports
from service.api.http.drain import Drain
from service.api.http.protocol import ConnectionLimits
from service.api.http.server import DrainingServer
from service.db.core.notify import Listener
from tests.served import running

TIMEOUT = 60.0
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def refuses(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer without a look at the body, as to who sends no key."""
    head = {"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]}
    await send(head)
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def connected(limits: ConnectionLimits) -> AsyncIterator[Streams]:
    """Yield a connection to the service's own server."""
    drain, port = Drain(Listener("postgresql://nowhere")), ports.free()
    server = DrainingServer(
        refuses, drain, host="127.0.0.1", port=port, drain_seconds=1.0, limits=limits
    )
    async with running(server), asyncio.timeout(TIMEOUT):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        yield reader, writer
        writer.close()


async def test_the_server_cuts_a_connection_on_which_no_head_comes() -> None:
    async with connected(ConnectionLimits(head_seconds=0.1)) as (reader, _):
        assert await reader.read() == b""


async def test_a_refused_head_is_answered_although_its_client_sends_on() -> None:
    async with connected(ConnectionLimits()) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n" + b"x: 1\r\n" * 60_000 + b"\r\n")
        await writer.drain()

        assert (await reader.readline()).startswith(b"HTTP/1.1 431 ")
        assert b'"headers_too_large"' in await reader.read()
