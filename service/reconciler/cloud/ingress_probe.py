"""Can nodes reach the service at all? The reconciler may be well while the api's door is shut.

As long as some node was heard lately it is open. When none was, the reconciler knocks where nodes
do: ingress, TLS and name included. While nobody opens, no node is taken for silent; not for longer
than nodes go on unheard, though: the reconciler's own way there may be the one that is shut.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import httpx
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.attempts import nodes
from service.reconciler.cloud.heartbeat_visibility import HeartbeatVisibility

log = logging.getLogger(__name__)
LATELY = timedelta(seconds=30)  # three heartbeats
_PATIENCE = 5.0  # seconds
_AGAIN = timedelta(minutes=5)  # somebody is told so often

Probe = Callable[[], Awaitable[str]]  # why nobody opened; empty: somebody did


@dataclass(kw_only=True)
class IngressProbe:
    """Tells the ``watch`` while nodes cannot be heard."""

    engine: AsyncEngine
    probe: Probe
    watch: HeartbeatVisibility
    now: Callable[[], datetime]
    at_most: timedelta
    _deaf_since: datetime | None = None
    _told: datetime | None = None

    async def run_once(self) -> None:
        """Look, and knock where nobody was heard."""
        async with self.engine.connect() as conn:
            unheard = await nodes.are_all_silent(conn, self.now() - LATELY)
        why = await self.probe() if unheard else ""
        if not why:
            self._deaf_since = None
            return
        self._deaf_since = self._deaf_since or self.now()
        if self.now() - self._deaf_since <= self.at_most:
            self.watch.record_blindness(self.now())
        self._tell(why)

    def _tell(self, why: str) -> None:
        if self._told is None or self.now() - self._told >= _AGAIN:
            self._told = self.now()
            log.error("service.unreachable", extra={"cause": why})


def door(public_url: str) -> Probe:
    """Return a probe of the service's public address, as nodes reach it."""

    async def probe() -> str:
        try:
            async with httpx.AsyncClient(timeout=_PATIENCE) as client:
                answer = await client.get(f"{public_url.rstrip('/')}/readyz")
        except httpx.HTTPError as fault:
            return f"{public_url}: {type(fault).__name__}: {fault}"
        told = f"{public_url} answered {answer.status_code}: {answer.text[:200]}"
        return "" if answer.is_success else told

    return probe
