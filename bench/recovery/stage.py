"""Shared state of the stack: the service's process, its availability, and the jobs' states."""

import asyncio
import time

import httpx
import psutil

from bench.recovery.victims import alive
from rekindle.local.layout import StackLayout

BACK_SECONDS = 90.0


class Stage:
    """The service's process and the states of all jobs."""

    def __init__(self, layout: StackLayout, api: httpx.AsyncClient) -> None:
        self._pid_path = layout.state / "pids" / "service"
        self._api = api
        self._down = False  # from a kill of the service until it is ready
        self.states: dict[str, str] = {}

    def service(self) -> psutil.Process | None:
        """Return the service's process, or None while it is restarting."""
        if self._down:
            return None
        try:
            process = psutil.Process(int(self._pid_path.read_text()))
        except (OSError, ValueError, psutil.NoSuchProcess):
            return None
        return process if alive(process) else None

    def mark_service_down(self) -> None:
        """Mark the service as down before a kill, so that no slot kills it while it restarts."""
        self._down = True

    async def wait_for_service(self) -> float | None:
        """Wait until the service is ready; return the Unix time, or None after a timeout."""
        latest = time.monotonic() + BACK_SECONDS
        while time.monotonic() < latest:
            try:
                answer = await self._api.get("/readyz", timeout=2)
            except httpx.TransportError:
                answer = None
            if answer is not None and answer.status_code == httpx.codes.OK:
                self._down = False
                return time.time()
            await asyncio.sleep(0.05)
        return None
