"""Work that is done once, whoever asks for it: what is under way is joined, not begun again."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import Any

Work = Callable[[], Coroutine[Any, Any, None]]

log = logging.getLogger(__name__)


class SingleFlight:
    """Tasks by the path that is there once they are done; they outlive who asked for them."""

    def __init__(self) -> None:
        self._tasks: dict[Path, asyncio.Task[None]] = {}

    async def once(self, path: Path, work: Work) -> None:
        """Join the work that ends with ``path``, or begin it, unless the path is there."""
        self.begin(path, work)
        if path in self._tasks:
            await asyncio.shield(self._tasks[path])

    def begin(self, path: Path, work: Work) -> None:
        """The same, without waiting for it."""
        if path not in self._tasks and not path.exists():
            task = self._tasks[path] = asyncio.ensure_future(work())
            task.add_done_callback(partial(self._ended, path))

    async def end(self, folders: Iterable[Path] | None = None) -> None:
        """Give up what is under way in these folders, or all of it."""
        gone = None if folders is None else set(folders)
        tasks = [t for p, t in self._tasks.items() if gone is None or p.parent in gone]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, path: Path, task: asyncio.Task[None]) -> None:
        del self._tasks[path]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.info("fetch.failed path=%s reason=%s", path.name, error)
