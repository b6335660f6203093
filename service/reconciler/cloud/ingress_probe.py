"""Probe the service's public address: the reconciler may run while nodes cannot reach the API.

A recent heartbeat of any node proves that they can. Without one, the reconciler probes the address
that nodes use: ingress, TLS and name included. While the probe fails, no node counts as silent.
This ends after the time that nodes continue without contact, since only the route of the
reconciler may be broken.
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
RECENT_HEARTBEAT = timedelta(seconds=30)  # three heartbeats
_TIMEOUT_SECONDS = 5.0
_LOG_INTERVAL = timedelta(minutes=5)

Probe = Callable[[], Awaitable[str]]  # why it is unreachable; empty: reachable


@dataclass(kw_only=True)
class IngressProbe:
    """Reports to ``visibility`` while nodes cannot reach the service."""

    engine: AsyncEngine
    probe: Probe
    visibility: HeartbeatVisibility
    now: Callable[[], datetime]
    max_blindness: timedelta
    _unreachable_since: datetime | None = None
    _logged_at: datetime | None = None

    async def run_once(self) -> None:
        """Probe the service if no node was heard recently."""
        async with self.engine.connect() as conn:
            all_silent = await nodes.are_all_silent(conn, self.now() - RECENT_HEARTBEAT)
        cause = await self.probe() if all_silent else ""
        if not cause:
            self._unreachable_since = None
            return
        self._unreachable_since = self._unreachable_since or self.now()
        if self.now() - self._unreachable_since <= self.max_blindness:
            self.visibility.record_blindness(self.now())
        self._log_unreachable(cause)

    def _log_unreachable(self, cause: str) -> None:
        if self._logged_at is None or self.now() - self._logged_at >= _LOG_INTERVAL:
            self._logged_at = self.now()
            log.error("service.unreachable", extra={"cause": cause})


def make_probe(public_url: str) -> Probe:
    """Return a probe of the service's public address, as nodes reach it."""

    async def probe() -> str:
        try:
            async with httpx.AsyncClient(timeout=_TIMEOUT_SECONDS) as client:
                answer = await client.get(f"{public_url.rstrip('/')}/readyz")
        except httpx.HTTPError as fault:
            return f"{public_url}: {type(fault).__name__}: {fault}"
        message = f"{public_url} answered {answer.status_code}: {answer.text[:200]}"
        return "" if answer.is_success else message

    return probe
