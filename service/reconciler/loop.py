"""Run each reconciler whenever rows are due, or at an interval, and drain it at shutdown."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from time import perf_counter
from typing import TypeVar

from service.db.core import notify
from service.db.core.db_errors import is_unavailable
from service.db.core.notify import Listener
from service.instruments import RECONCILE_STEP
from service.operations.core.liveness import LoopLiveness

log = logging.getLogger(__name__)
T = TypeVar("T")
CONCURRENT_STEPS = 200  # of one kind; most share their transactions (service/db/core/batching.py)
CLAIM_INTERVAL_SECONDS = 0.05  # between claims, so that rows of one eviction share a batch
BATCH_SECONDS = 0.15  # after a batch: its rows are observed and written in shared transactions
_SAFETY_NET_SECONDS = 1.0  # notices may be lost; due rows are also looked for this often
_AFTER_FAULT_SECONDS = 1.0
# No healthy turn takes longer, however slow Azure and Blob are. Work with a long period has more to
# do in a turn, so it may take ten times its period on top.
_MAX_TURN = timedelta(minutes=30)
_PERIODS_PER_TURN = 10

Step = Callable[[], Awaitable[None]]
Claim = Callable[[int], Awaitable[list[Step]]]


@dataclass(frozen=True, kw_only=True)
class Loop:
    """Runs reconcilers until ``stop`` is set; then finishes steps, and rounds within ``drain``."""

    listener: Listener
    stop: asyncio.Event
    liveness: LoopLiveness | None = None  # records every turn
    drain: float = 10.0  # seconds for a running round to end at shutdown

    async def run_when_due(
        self,
        name: str,
        claim: Claim,
        at_once: int = CONCURRENT_STEPS,
        interval: float = CLAIM_INTERVAL_SECONDS,
    ) -> None:
        """Claim due rows and run their steps concurrently, ``at_once`` at most.

        A step that waits for a slow region delays no other, until ``at_once`` steps wait.
        ``interval``: shortest time between two claims in seconds. After a claim of several rows it
        is BATCH_SECONDS, if that is longer.
        """
        under_way: set[asyncio.Task[None]] = set()
        clock = asyncio.get_running_loop().time
        self._record_turn(name)
        async with self.listener.subscribed(notify.DUE) as hinted:
            while not self.stop.is_set():
                free, start = at_once - len(under_way), clock()
                steps = await self._run_guarded(name, partial(claim, free)) if free else []
                if steps is not None:  # a claim that always fails does no work
                    self._record_turn(name)
                for step in steps or []:
                    task = asyncio.create_task(self._run_guarded(name, step))
                    under_way.add(task)
                    task.add_done_callback(under_way.discard)
                if not steps:
                    ends = () if free else under_way
                    await self._pause(hinted, _SAFETY_NET_SECONDS, *ends)
                pause = max(interval, BATCH_SECONDS) if len(steps or ()) > 1 else interval
                if (early := start + pause - clock()) > 0:
                    await asyncio.sleep(early)
        await asyncio.gather(*under_way)

    async def run_every(
        self, seconds: float, name: str, run: Callable[[], Awaitable[object]]
    ) -> None:
        """Run every ``seconds``; retry after a failure with a backoff of at most ``seconds``."""
        pause, backoff = seconds, 0.0
        while not self.stop.is_set():
            self._record_turn(name, timedelta(seconds=pause))
            await self._pause(asyncio.Event(), pause)
            if not self.stop.is_set():
                self._record_turn(name, _longest_turn(seconds))
                succeeded = await self._run_guarded(
                    name, partial(self._run_round, partial(_run_to_end, run))
                )
                pause = seconds if succeeded else backoff
                backoff = 0.0 if succeeded else min(2 * backoff + _AFTER_FAULT_SECONDS, seconds)

    async def run_on_notice(
        self, topic: str, seconds: float, name: str, run: Callable[[], Awaitable[object]]
    ) -> None:
        """Run on each notification of ``topic``, and every ``seconds``.

        Pauses as long as the last run took, 1 second at most.
        """
        clock = asyncio.get_running_loop().time
        async with self.listener.subscribed(topic) as notified:
            while not self.stop.is_set():
                start = clock()
                self._record_turn(name, _longest_turn(seconds))
                await self._run_guarded(name, partial(self._run_round, run))
                self._record_turn(name, timedelta(seconds=seconds))
                await self._pause(asyncio.Event(), min(clock() - start, 1.0))
                await self._pause(notified, seconds)

    def _record_turn(self, name: str, within: timedelta = timedelta(0)) -> None:
        if self.liveness:
            self.liveness.record_turn(name, within)

    async def _run_round(self, run: Callable[[], Awaitable[T]]) -> T | None:
        """Run one round of a sweep, which may take minutes; cancel it at the end of a drain.

        A round may be cut off anywhere, as by a kill: the next process runs it again.
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

    async def _run_guarded(self, name: str, run: Callable[[], Awaitable[T]]) -> T | None:
        """Run once; log any failure and return None. The next round retries: level-triggered."""
        start, result = perf_counter(), "failed"
        try:
            answer = await run()
        except Exception as fault:
            if is_unavailable(fault):
                log.warning("loop.database_failed", extra={"loop": name, "cause": str(fault)})
            else:
                log.exception("loop.failed", extra={"loop": name})
        else:
            result = "ok"
            return answer
        finally:
            RECONCILE_STEP.observe(name, result, value=perf_counter() - start)
        await self._pause(asyncio.Event(), _AFTER_FAULT_SECONDS)
        return None

    async def _pause(
        self, hinted: asyncio.Event, seconds: float, *ends: asyncio.Task[None]
    ) -> None:
        """Wait for the hint, the time, the stop or the end of one of ``ends``."""
        waits = [
            asyncio.create_task(self.stop.wait()),
            asyncio.create_task(notify.wait(hinted, seconds)),
        ]
        await asyncio.wait([*waits, *ends], return_when=asyncio.FIRST_COMPLETED)
        for task in waits:
            task.cancel()


def _longest_turn(seconds: float) -> timedelta:
    """Return the longest time of one healthy turn of work that runs every ``seconds``."""
    return _MAX_TURN + _PERIODS_PER_TURN * timedelta(seconds=seconds)


async def _run_to_end(run: Callable[[], Awaitable[object]]) -> bool:
    await run()
    return True
