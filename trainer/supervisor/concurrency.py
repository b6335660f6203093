"""Run awaitables concurrently, cancel the rest when one fails, and join work under way."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


async def gather_or_cancel(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return all results in order; the first failure cancels the others and is raised."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def wait_first(*waits: Coroutine[Any, Any, object], seconds: float | None = None) -> None:
    """Return when one of them has returned, or after ``seconds``; cancel the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


Work = Callable[[], Coroutine[Any, Any, None]]

log = logging.getLogger(__name__)


class SingleFlight:
    """Tasks by the path that exists once they are done; they outlive their callers."""

    def __init__(self) -> None:
        self._tasks: dict[Path, asyncio.Task[None]] = {}

    async def run_once(self, path: Path, work: Work) -> None:
        """Join or start the work that creates ``path``, unless the path exists."""
        self.start(path, work)
        if path in self._tasks:
            await asyncio.shield(self._tasks[path])

    def start(self, path: Path, work: Work) -> None:
        """Start the work without waiting, unless it runs or the path exists."""
        if path not in self._tasks and not path.exists():
            task = self._tasks[path] = asyncio.ensure_future(work())
            task.add_done_callback(partial(self._remove_task, path))

    async def cancel(self, folders: Iterable[Path] | None = None) -> None:
        """Cancel the work in these folders, or all of it."""
        selected = None if folders is None else set(folders)
        tasks = [t for p, t in self._tasks.items() if selected is None or p.parent in selected]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _remove_task(self, path: Path, task: asyncio.Task[None]) -> None:
        del self._tasks[path]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.info("fetch.failed path=%s reason=%s", path.name, error)
