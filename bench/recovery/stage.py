"""The stack as the slots see it: the service's process, whether it answers, the jobs' states."""

import asyncio
import time

import httpx
import psutil

from bench.recovery.victims import alive
from rekindle.local.layout import StackLayout

BACK_SECONDS = 90.0


class Stage:
    """Knows what goes on behind the API."""

    def __init__(self, layout: StackLayout, api: httpx.AsyncClient) -> None:
        self._note = layout.state / "pids" / "service"
        self._api = api
        self._down = False  # from a kill of the service until it is back
        self.states: dict[str, str] = {}

    def service(self) -> psutil.Process | None:
        """The service's process, unless it is being started again."""
        if self._down:
            return None
        try:
            process = psutil.Process(int(self._note.read_text()))
        except (OSError, ValueError, psutil.NoSuchProcess):
            return None
        return process if alive(process) else None

    def service_goes(self) -> None:
        """Said before it is killed: nobody else kills it while it is being started."""
        self._down = True

    async def service_back(self) -> float | None:
        """Wait until it answers again; when that was."""
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
