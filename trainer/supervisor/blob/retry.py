"""Sitting out an outage of Blob: for so long as nothing comes, however long it came before."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    wait_random_exponential,
)

from trainer.supervisor.blob.container import AccessRefusedError, BlobUnavailableError
from trainer.supervisor.clock import NodeClock, NodeLimits

SECTOR = 512  # bytes, in which a file says how much of it is there


class OutageRetry:
    """Has work done again, also with grants that ran out until there are fresh ones.

    What is fetched lies below ``folders``: more of it there says that Blob is not away.
    """

    def __init__(
        self,
        limits: NodeLimits,
        clock: NodeClock,
        regrant: Callable[[], Awaitable[None]],
        *folders: Path,
    ) -> None:
        self._limits, self._clock, self._regrant = limits, clock, regrant
        self._folders = folders

    async def sit_out(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do it; raises what it raised last, once nothing has come for as long as may be."""
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type((BlobUnavailableError, AccessRefusedError)),
            stop=StopOnStandstill(self._came, self._clock.monotonic, self._limits.outage),
            wait=wait_random_exponential(multiplier=0.5, max=self._limits.retry),
            reraise=True,
        ):
            with attempt:
                try:
                    await work()
                except AccessRefusedError:
                    await self._regrant()
                    raise

    def _came(self) -> int:
        return sum(bytes_on_disk(folder) for folder in self._folders)


class StopOnStandstill:
    """Asked after each failure: true once nothing more has come for longer than ``seconds``.

    A file that is begun again comes anew only where it comes further than before.
    """

    def __init__(
        self, came: Callable[[], int], monotonic: Callable[[], float], seconds: float
    ) -> None:
        self._came, self._monotonic, self._seconds = came, monotonic, seconds
        self._most, self._since = came(), monotonic()

    def __call__(self, _: RetryCallState | None = None) -> bool:
        """Whether it is no use any more."""
        came, now = self._came(), self._monotonic()
        if came > self._most:
            self._most, self._since = came, now
        return now - self._since > self._seconds


def bytes_on_disk(folder: Path) -> int:
    """What has come of the files below a folder; some have their full length from the start."""
    paths = (Path(at) / name for at, _, names in os.walk(folder) for name in names)
    return sum(_allocated_bytes(path) for path in paths)


def _allocated_bytes(path: Path) -> int:
    try:
        return path.lstat().st_blocks * SECTOR
    except FileNotFoundError:  # it has just got its name, or was dropped
        return 0
