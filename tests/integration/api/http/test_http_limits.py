"""What is read of a request that nobody may make or that is too long."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from starlette.types import Receive, Scope, Send

from bench import ports
from service.api.app import make_routes
from service.api.http.drain import Drain
from service.api.http.protocol import ConnectionLimits
from service.api.http.requests import LONG_BODY, USUAL_BODY
from service.api.http.server import DrainingServer
from service.db.core.notify import Listener
from tests.served import running
from tests.world import World

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


LONG = {
    "completeUpload",
    "createFineTuningJob",
    "createFineTuningPlan",
    "runGrader",
    "validateGrader",
}
OPEN = {"signIn"}  # its short body is what its sender is known by: projects/test_keys.py


def bodies() -> Iterator[tuple[str, str, str, bool]]:
    """Of every operation that takes a body: its name, method and path, and whether it is JSON."""
    for path, operations in make_routes().openapi()["paths"].items():
        for method, operation in operations.items():
            body = operation.get("requestBody")
            if body and operation["operationId"] not in OPEN:
                is_json = "application/json" in body["content"]
                plain = path.replace("{", "").replace("}", "")
                yield operation["operationId"], method.upper(), plain, is_json


BODIES = [(name, method, path) for name, method, path, _ in bodies()]
JSON = [(name, method, path) for name, method, path, is_json in bodies() if is_json]


async def body(size: int, read: list[int]) -> AsyncIterator[bytes]:
    """Yield a string in JSON of ``size`` bytes, in chunks; ``read``: how much of it was taken."""
    yield b'"'
    for sent in range(1, size - 1, 1024):
        piece = b"x" * min(1024, size - 1 - sent)
        read.append(len(piece))
        yield piece
    yield b'"'


async def test_no_byte_of_a_body_is_read_before_the_key_is_known(world: World) -> None:
    for key in ({}, {"authorization": "Bearer rk-of-nobody"}):
        headers = {"content-type": "application/json"} | key
        for name, method, path in BODIES:
            read: list[int] = []
            sent = body(10_000, read)
            answer = await world.http.request(method, path, headers=headers, content=sent)

            assert (answer.status_code, read) == (401, []), name


async def test_a_body_in_json_has_64_kib_where_no_more_is_needed(world: World) -> None:
    headers = {"content-type": "application/json"}
    for name, method, path in JSON:
        most = LONG_BODY if name in LONG else USUAL_BODY
        fits = await world.call(method, path, headers=headers, content=body(most, []))
        read: list[int] = []
        refused = await world.call(method, path, headers=headers, content=body(2 * most, read))

        assert fits.status_code != 413, name
        assert refused.status_code == 413, name
        assert sum(read) <= most + 2048, name
