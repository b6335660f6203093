"""One attack on an api process: `python -m bench.hostile.attacks NAME PORT KEY`.

It is a separate process, so that its CPU and memory do not count as the service's. The last line
of its output is JSON: the number of each status line, and the number of closed connections.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
BATCH = 500
MIB = 2**20
CUT_OFF = (ConnectionError, asyncio.IncompleteReadError, TimeoutError)


@dataclass
class AttackTarget:
    """The attacked process, and its reactions."""

    port: int
    key: str
    answers: Counter[str] = field(default_factory=Counter)
    cut: int = 0

    async def connect(self) -> Streams:
        """Open a new connection."""
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def read_answer(self, reader: asyncio.StreamReader, seconds: float) -> None:
        """Record the status line, a closed connection, or the lack of both within ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                line = await reader.readline()
            self.answers[line.decode().strip() or "closed"] += 1
        except TimeoutError:
            self.answers["nothing"] += 1
        except CUT_OFF:
            self.answers["reset"] += 1


async def long_header(target: AttackTarget) -> None:
    """Send one header of 128 MiB."""
    reader, writer = await target.connect()
    writer.write(b"GET /livez HTTP/1.1\r\nx: ")
    with suppress(*CUT_OFF):
        for _ in range(128):
            writer.write(b"a" * MIB)
            await writer.drain()
        writer.write(b"\r\n\r\n")
    await target.read_answer(reader, 60)


async def many_headers(target: AttackTarget) -> None:
    """Send 60,000 headers in one request."""
    reader, writer = await target.connect()
    writer.write(b"GET /livez HTTP/1.1\r\nhost: h\r\n")
    writer.write(b"".join(b"x-%d: 1\r\n" % n for n in range(60_000)) + b"\r\n")
    with suppress(*CUT_OFF):
        await writer.drain()
    await target.read_answer(reader, 60)


async def pipelined(target: AttackTarget) -> None:
    """Pipeline 3,500 requests on each of 500 connections without reading answers."""

    async def one() -> None:
        reader, writer = await target.connect()
        writer.write(b"GET /v1/files HTTP/1.1\r\nhost: h\r\n\r\n" * 3500)
        with suppress(*CUT_OFF):
            async with asyncio.timeout(20):
                await writer.drain()
        await target.read_answer(reader, 20)

    await _batch(one)


async def half_bodies(target: AttackTarget) -> None:
    """Send 500 requests with a key whose bodies stop after 1 MB."""

    async def one() -> None:
        reader, writer = await target.connect()
        head = f"authorization: Bearer {target.key}\r\ncontent-type: application/json\r\n"
        head += "host: h\r\ncontent-length: 1048000\r\n\r\n"
        writer.write(b"POST /v1/fine_tuning/jobs HTTP/1.1\r\n" + head.encode())
        writer.write(b'{"model": "' + b"x" * 1_000_000)
        with suppress(*CUT_OFF):
            async with asyncio.timeout(20):
                await writer.drain()
        await target.read_answer(reader, 45)

    await _batch(one)


async def chunks_without_key(target: AttackTarget) -> None:
    """Send a chunked body of 400 MiB without a key."""
    reader, writer = await target.connect()
    writer.write(b"POST /v1/fine_tuning/jobs HTTP/1.1\r\nhost: h\r\n")
    writer.write(b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
    await target.read_answer(reader, 5)
    try:
        for _ in range(400):
            writer.write(b"100000\r\n" + bytes(MIB) + b"\r\n")
            await writer.drain()
        writer.write(b"0\r\n\r\n")
    except CUT_OFF:
        target.cut += 1
    if not target.answers["HTTP/1.1 401 Unauthorized"]:
        await target.read_answer(reader, 60)


async def slowly(target: AttackTarget, first: bytes, drop: bytes) -> None:
    """Open 500 connections and send request heads that never end.

    Args:
        target: The attacked process.
        first: Bytes to send at first.
        drop: Bytes to send once a second afterwards.
    """

    async def one() -> None:
        reader, writer = await target.connect()
        with suppress(*CUT_OFF):
            writer.write(first)
            start = time.monotonic()
            while time.monotonic() < start + 30 and not reader.at_eof():
                writer.write(drop)
                await writer.drain()
                await asyncio.sleep(1)
        target.cut += reader.at_eof()

    await _batch(one)


async def never_reads(target: AttackTarget) -> None:
    """Request the API document on 1,500 connections and never read it."""

    async def one() -> None:
        reader, writer = await target.connect()
        transport = writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()
        writer.write(b"GET /openapi.json HTTP/1.1\r\nhost: h\r\n\r\n")
        await asyncio.sleep(75)
        transport.resume_reading()
        with suppress(*CUT_OFF):
            async with asyncio.timeout(20):
                while await reader.read(MIB):
                    pass
        target.cut += reader.at_eof() or reader.exception() is not None

    await _batch(one, 3 * BATCH)


ATTACKS: dict[str, Callable[[AttackTarget], Awaitable[None]]] = {
    "header of 128 MiB": long_header,
    "60,000 headers": many_headers,
    "3,500 pipelined x 500": pipelined,
    "500 half bodies with a key": half_bodies,
    "400 MiB of chunks, no key": chunks_without_key,
    "500 slow heads": partial(slowly, first=b"GET /livez HTTP/1.1\r\n", drop=b"x"),
    "500 with empty lines": partial(slowly, first=b"", drop=b"\r\n"),
    "500 idle": partial(slowly, first=b"", drop=b""),
    "1,500 that never read": never_reads,
}


async def _batch(connect: Callable[[], Awaitable[None]], many: int = BATCH) -> None:
    await asyncio.gather(*(connect() for _ in range(many)))


def main() -> None:
    """Run one attack and print its result."""
    name, port, key = sys.argv[1:]
    target = AttackTarget(port=int(port), key=key)
    asyncio.run(_attack(name, target))
    print(json.dumps({"answers": target.answers, "cut": target.cut}), flush=True)


async def _attack(name: str, target: AttackTarget) -> None:
    await ATTACKS[name](target)


if __name__ == "__main__":
    main()
