"""Network between a node and Blob that a test can cut or slow down: a TCP proxy on loopback."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress


class Cable:
    """A TCP proxy; while it is cut, connections break and new ones are refused."""

    def __init__(self, port: int) -> None:
        self._there = port
        self._lines: set[asyncio.StreamWriter] = set()
        self._whole = asyncio.Event()
        self._whole.set()
        self.port = 0
        self.rate = math.inf  # bytes/s to Blob, summed over all connections
        self._turn = asyncio.Lock()

    def cut(self) -> None:
        """Break all connections and refuse new ones."""
        self._whole.clear()
        for line in self._lines:
            line.transport.abort()

    def mend(self) -> None:
        """Accept connections again."""
        self._whole.set()

    def through(self, url: str) -> str:
        """Return the URL with this proxy's port."""
        return url.replace(f":{self._there}/", f":{self.port}/")

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection."""
        if not self._whole.is_set():
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._there)
        writers = {writer, far_writer}
        self._lines |= writers
        await asyncio.gather(
            _pass(reader, far_writer, self._squeeze), _pass(far_reader, writer, _at_once)
        )
        self._lines -= writers

    async def _squeeze(self, size: int) -> None:
        async with self._turn:
            await asyncio.sleep(size / self.rate)


@asynccontextmanager
async def laid_to(port: int) -> AsyncIterator[Cable]:
    """Run a proxy to this port of loopback."""
    cable = Cable(port)
    server = await asyncio.start_server(cable.carry, "127.0.0.1", 0)
    cable.port = server.sockets[0].getsockname()[1]
    try:
        yield cable
    finally:
        cable.cut()
        server.close()
        await server.wait_closed()


async def _at_once(size: int) -> None:
    """Forward without delay."""


async def _pass(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    held_back: Callable[[int], Awaitable[None]],
) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            await held_back(len(data))
            writer.write(data)
            await writer.drain()
    writer.close()
