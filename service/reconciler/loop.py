"""The only code that waits: runs each reconciler whenever something is due, and drains."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from time import perf_counter
from typing import TypeVar

from service.db.core import notify
from service.db.core.db_errors import is_away
from service.db.core.notify import Listener
from service.instruments import RECONCILE_STEP
from service.operations.liveness import LoopLiveness

log = logging.getLogger(__name__)
T = TypeVar("T")
AT_ONCE = 200  # steps of one kind; most share their transactions (service/db/core/batching.py)
BREATH_SECONDS = 0.05  # between two claims, so that after an eviction crowds are claimed, not each
CROWD_SECONDS = 0.15  # after a crowd: what is claimed together is looked at and written together
_SAFETY_NET_SECONDS = 1.0  # notices may be lost; due rows are also looked for this often
_AFTER_FAULT_SECONDS = 1.0
# Nothing that is well takes longer for one turn, slow as Azure and Blob may be. Work that is done
# more rarely has more to do, so it may take ten times its period on top.
_LONGEST_TURN = timedelta(minutes=30)
_PERIODS = 10

Step = Callable[[], Awaitable[None]]
Claim = Callable[[int], Awaitable[list[Step]]]


@dataclass(frozen=True, kw_only=True)
class Loop:
    """Runs until ``stop`` is set; steps under way are finished first, rounds if they are quick."""

    listener: Listener
    stop: asyncio.Event
    pulse: LoopLiveness | None = None  # told of every turn
    drain: float = 10.0  # seconds that a round has left when the process is to end

    async def whenever_due(
        self, name: str, claim: Claim, at_once: int = AT_ONCE, breath: float = BREATH_SECONDS
    ) -> None:
        """Claim what is due and take each step beside the others, so many at a time at most.

        A step that waits for a slow region holds up itself and, until so many do, nothing else.
        ``breath``: seconds from a claim to the next at least; after a crowd, CROWD_SECONDS if
        that is more.
        """
        under_way: set[asyncio.Task[None]] = set()
        clock = asyncio.get_running_loop().time
        self._beat(name)
        async with self.listener.subscribed(notify.DUE) as hinted:
            while not self.stop.is_set():
                free, began = at_once - len(under_way), clock()
                steps = await self._guarded(name, partial(claim, free)) if free else []
                if steps is not None:  # a claim that always fails does no work
                    self._beat(name)
                for step in steps or []:
                    task = asyncio.create_task(self._guarded(name, step))
                    under_way.add(task)
                    task.add_done_callback(under_way.discard)
                if not steps:
                    ends = () if free else under_way
                    await self._pause(hinted, _SAFETY_NET_SECONDS, *ends)
                pause = max(breath, CROWD_SECONDS) if len(steps or ()) > 1 else breath
                if (early := began + pause - clock()) > 0:
                    await asyncio.sleep(early)
        await asyncio.gather(*under_way)

    async def every(self, seconds: float, name: str, run: Callable[[], Awaitable[object]]) -> None:
        """Run at a steady beat; after a fault soon, and later each time that it fails again."""
        pause, again = seconds, 0.0
        while not self.stop.is_set():
            self._beat(name, timedelta(seconds=pause))
            await self._pause(asyncio.Event(), pause)
            if not self.stop.is_set():
                self._beat(name, _turn(seconds))
                well = await self._guarded(name, partial(self._round, partial(_whole, run)))
                pause = seconds if well else again
                again = 0.0 if well else min(2 * again + _AFTER_FAULT_SECONDS, seconds)

    async def whenever(
        self, topic: str, seconds: float, name: str, run: Callable[[], Awaitable[object]]
    ) -> None:
        """Run whenever ``topic`` is notified, and at a beat; at most half of the time."""
        clock = asyncio.get_running_loop().time
        async with self.listener.subscribed(topic) as told:
            while not self.stop.is_set():
                began = clock()
                self._beat(name, _turn(seconds))
                await self._guarded(name, partial(self._round, run))
                self._beat(name, timedelta(seconds=seconds))
                await self._pause(asyncio.Event(), min(clock() - began, 1.0))
                await self._pause(told, seconds)

    def _beat(self, name: str, within: timedelta = timedelta(0)) -> None:
        if self.pulse:
            self.pulse.record_turn(name, within)

    async def _round(self, run: Callable[[], Awaitable[T]]) -> T | None:
        """One of a sweep, which may take minutes: who drains does not wait for its end.

        The next process begins it anew; it may be cut off anywhere, as by a kill.
        """
        task, stopping = asyncio.ensure_future(run()), asyncio.create_task(self.stop.wait())
        try:
            await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({task}, timeout=self.drain)
            return task.result() if task.done() else None
        finally:
            stopping.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    async def _guarded(self, name: str, run: Callable[[], Awaitable[T]]) -> T | None:
        """Once. Whatever fails, the next round comes: rows are level-triggered."""
        began, result = perf_counter(), "failed"
        try:
            answer = await run()
        except Exception as fault:
            if is_away(fault):
                log.warning("loop.database_failed", extra={"loop": name, "cause": str(fault)})
            else:
                log.exception("loop.failed", extra={"loop": name})
        else:
            result = "ok"
            return answer
        finally:
            RECONCILE_STEP.observe(name, result, value=perf_counter() - began)
        await self._pause(asyncio.Event(), _AFTER_FAULT_SECONDS)
        return None

    async def _pause(
        self, hinted: asyncio.Event, seconds: float, *ends: asyncio.Task[None]
    ) -> None:
        """Until the hint, the time, the stop or the end of one of ``ends``."""
        own = [
            asyncio.create_task(self.stop.wait()),
            asyncio.create_task(notify.wait(hinted, seconds)),
        ]
        await asyncio.wait([*own, *ends], return_when=asyncio.FIRST_COMPLETED)
        for task in own:
            task.cancel()


def _turn(seconds: float) -> timedelta:
    """For one turn of what is done every so many seconds."""
    return _LONGEST_TURN + _PERIODS * timedelta(seconds=seconds)


async def _whole(run: Callable[[], Awaitable[object]]) -> bool:
    await run()
    return True
