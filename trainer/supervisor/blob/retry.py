"""Retry fetches during an outage of Blob, for as long as data still arrives now and then.

Uploads have their own retries: `trainer/supervisor/upload/uploads.py` repeats its passes.
"""

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

SECTOR = 512  # bytes, the unit of st_blocks


class OutageRetry:
    """Retries fetches on outages and, after renewing the grants, on expired grants.

    Growth of the files below ``folders`` proves that Blob answers.
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

    async def run_until_outage_ends(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run the work with retries; raise its last error once no data came for the limit."""
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type((BlobUnavailableError, AccessRefusedError)),
            stop=StopOnStandstill(self._received_bytes, self._clock.monotonic, self._limits.outage),
            wait=wait_random_exponential(multiplier=0.5, max=self._limits.retry),
            reraise=True,
        ):
            with attempt:
                try:
                    await work()
                except AccessRefusedError:
                    await self._regrant()
                    raise

    def _received_bytes(self) -> int:
        return sum(bytes_on_disk(folder) for folder in self._folders)


class StopOnStandstill:
    """A stop condition of tenacity: no more data for longer than ``seconds``.

    A file that is fetched again counts only once it is larger than before.
    """

    def __init__(
        self, received: Callable[[], int], monotonic: Callable[[], float], seconds: float
    ) -> None:
        self._received, self._monotonic, self._seconds = received, monotonic, seconds
        self._max_received, self._since = received(), monotonic()

    def __call__(self, _: RetryCallState | None = None) -> bool:
        """Return whether to stop retrying."""
        received, now = self._received(), self._monotonic()
        if received > self._max_received:
            self._max_received, self._since = received, now
        return now - self._since > self._seconds


def bytes_on_disk(folder: Path) -> int:
    """Return the allocated bytes of the files below a folder; some are sparse."""
    paths = (Path(at) / name for at, _, names in os.walk(folder) for name in names)
    return sum(_allocated_bytes(path) for path in paths)


def _allocated_bytes(path: Path) -> int:
    try:
        return path.lstat().st_blocks * SECTOR
    except FileNotFoundError:  # it has just got its name, or was dropped
        return 0
