"""uvicorn with limits on connections and an orderly shutdown (``Drain``).

Replacing a replica is no fault, so it raises no alert. uvicorn would cancel the remaining requests,
which answers 500 and logs a traceback for each.
"""

import asyncio
import logging
import math
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from service.api.http.drain import Drain
from service.api.http.protocol import (
    DEFAULT_LIMITS,
    ConnectionLimits,
    LimitedProtocol,
    make_protocol,
)

log = logging.getLogger(__name__)
_TICKS = 10  # of uvicorn's main loop between two checks of the connections: a second
_HUNG_SECONDS = 5.0  # after the drain; a request that still runs then hangs


class DrainingServer(uvicorn.Server):
    """uvicorn's server with a drain. Signals are left to main: the reconcilers drain as well."""

    def __init__(
        self,
        app: ASGIApp,
        drain: Drain,
        *,
        host: str,
        port: int,
        drain_seconds: float,
        limits: ConnectionLimits = DEFAULT_LIMITS,
    ) -> None:
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            http=make_protocol(limits),
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=math.ceil(drain_seconds + _HUNG_SECONDS),
        )
        super().__init__(config)
        self._drain, self._drain_seconds = drain, drain_seconds

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield

    async def on_tick(self, counter: int) -> bool:
        """Close the connections whose time limits are over."""
        if counter % _TICKS == 0:
            for connection in list(self.server_state.connections):
                assert isinstance(connection, LimitedProtocol)
                connection.check_times()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the running requests, then the server."""
        self._drain.begin_drain()
        interrupting = asyncio.create_task(self._interrupt_requests())
        await super().shutdown(sockets)
        interrupting.cancel()

    async def _interrupt_requests(self) -> None:
        """Interrupt the remaining requests after the drain's time; cut half-sent answers."""
        await asyncio.sleep(self._drain_seconds)
        unanswered = await self._drain.interrupt_requests()
        half_answered = list(self.server_state.connections)
        for connection in half_answered:
            connection.transport.abort()
        facts = {"unanswered": unanswered, "half_answered": len(half_answered)}
        log.warning("api.cut_off", extra=facts)
