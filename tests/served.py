"""A real uvicorn on a free port of loopback, for clients that need a URL."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from service.api.http.protocol import make_protocol
from tests import waiting
from tests.answers import Documented


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[str]:
    """Serve the app and yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        checked = Documented(app) if isinstance(app, FastAPI) else app
        config = uvicorn.Config(
            checked,
            http=make_protocol(),
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=5,
        )
        async with running(_Server(config), [listening]):
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@asynccontextmanager
async def running(
    server: uvicorn.Server, sockets: list[socket.socket] | None = None
) -> AsyncIterator[None]:
    """Run a server; stop it at the end, within a minute."""
    serving = asyncio.create_task(server.serve(sockets=sockets))

    async def started() -> bool:
        return server.started

    await waiting.until(started, bool, interval=0.01)
    try:
        yield
    finally:
        server.should_exit = True
        await asyncio.wait_for(serving, 60)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave pytest's signal handlers in place."""
        yield
