"""Remote calls between the benchmark's processes: pickled messages over a Unix socket.

Only processes of the benchmark can access the socket's folder, so the pickles are trusted.
"""

import asyncio
import pickle
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

Handler = Callable[[str, tuple[Any, ...], dict[str, Any]], Awaitable[Any]]
_SIZE = struct.Struct("!I")


class Broken(Exception):
    """Raised when the other process closed the connection."""


class Line:
    """Client side; calls are concurrent, and answers may arrive in any order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._numbers = count()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._connect_lock = asyncio.Lock()

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - anything
        """Call a method of the other process and return its result, or raise its exception."""
        writer = await self._connected()
        number = next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        writer.write(_packed((number, method, args, kwargs)))
        return await answer

    async def close(self) -> None:
        """Close the connection."""
        if self._reading:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._writer:
            self._writer.close()

    async def _connected(self) -> asyncio.StreamWriter:
        async with self._connect_lock:
            if self._writer is None:
                reader, self._writer = await asyncio.open_unix_connection(str(self._path))
                self._reading = asyncio.create_task(self._read(reader))
        return self._writer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                number, is_ok, value = await _next(reader)
                waiting = self._waiting.pop(number)
                if waiting.cancelled():
                    continue
                waiting.set_result(value) if is_ok else waiting.set_exception(value)
        except (asyncio.IncompleteReadError, ConnectionError):
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(Broken(str(self._path)))


async def serve(path: Path, handle: Handler) -> asyncio.Server:
    """Serve calls, each in a task of its own."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        under_way: set[asyncio.Task[None]] = set()
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                number, method, args, kwargs = await _next(reader)
                task = asyncio.create_task(_answer(writer, handle, number, method, args, kwargs))
                under_way.add(task)
                task.add_done_callback(under_way.discard)

    return await asyncio.start_unix_server(talk, str(path))


async def _answer(
    writer: asyncio.StreamWriter,
    handle: Handler,
    number: int,
    method: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    try:
        answer: tuple[int, bool, Any] = (number, True, await handle(method, args, kwargs))
    except Exception as fault:  # noqa: BLE001 - the caller's process raises it
        answer = (number, False, fault)
    with suppress(ConnectionError):
        writer.write(_packed(answer))


async def _next(reader: asyncio.StreamReader) -> Any:  # noqa: ANN401 - anything
    (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
    return pickle.loads(await reader.readexactly(size))  # noqa: S301 - from our own process


def _packed(value: object) -> bytes:
    data = pickle.dumps(value, protocol=5)
    return _SIZE.pack(len(data)) + data
