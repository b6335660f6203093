"""The only code that waits: runs each reconciler whenever something is due, and drains."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sqlalchemy.exc import DBAPIError

from service.db import notices
from service.db.notices import Listener

log = logging.getLogger(__name__)
BATCH = 20
_SAFETY_NET_SECONDS = 1.0  # notices may be lost; due rows are also looked for this often
_AFTER_FAULT_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Loop:
    """Runs until ``stop`` is set; a step under way is finished first."""

    listener: Listener
    stop: asyncio.Event

    async def whenever_due(self, name: str, run_once: Callable[[int], Awaitable[int]]) -> None:
        """Take steps as long as there are any, then wait for a notice."""
        async with self.listener.subscribed(notices.DUE) as hinted:
            while not self.stop.is_set():
                if await self._guarded(name, run_once) < BATCH:
                    await self._pause(hinted, _SAFETY_NET_SECONDS)

    async def every(self, seconds: float, name: str, run: Callable[[], Awaitable[object]]) -> None:
        """Run at a steady beat."""
        while not self.stop.is_set():
            await self._pause(asyncio.Event(), seconds)
            if not self.stop.is_set():
                await self._guarded(name, lambda _: _as_count(run))

    async def _guarded(self, name: str, run_once: Callable[[int], Awaitable[int]]) -> int:
        """One round. Whatever fails, the next round comes: rows are level-triggered."""
        try:
            return await run_once(BATCH)
        except DBAPIError as fault:
            log.warning("loop.database_failed", extra={"loop": name, "cause": str(fault.orig)})
        except Exception:
            log.exception("loop.failed", extra={"loop": name})
        await asyncio.sleep(_AFTER_FAULT_SECONDS)
        return 0

    async def _pause(self, hinted: asyncio.Event, seconds: float) -> None:
        stopping = asyncio.create_task(self.stop.wait())
        waiting = asyncio.create_task(notices.wait(hinted, seconds))
        _, pending = await asyncio.wait((stopping, waiting), return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()


async def _as_count(run: Callable[[], Awaitable[object]]) -> int:
    await run()
    return 0
