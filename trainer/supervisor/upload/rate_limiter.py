"""How fast uploads may go while the trainer trains, so that they do not take its network."""

import asyncio
from collections.abc import Callable

from trainer.supervisor.concurrency import wait_first


class UploadRateLimiter:
    """Lets bytes through at a rate; none is held back once the cap is lifted."""

    def __init__(self, bytes_per_second: float, monotonic: Callable[[], float]) -> None:
        self._rate, self._monotonic = bytes_per_second, monotonic
        self._free_at = 0.0  # when all that was let through has gone at that rate
        self._lifted = asyncio.Event()

    def lift(self) -> None:
        """From now on everything goes at once: the machine is about to go."""
        self._lifted.set()

    async def turn(self, size: int) -> None:
        """Return when ``size`` more bytes may go."""
        begins = max(self._free_at, self._monotonic())
        self._free_at = begins + size / self._rate
        while not self._lifted.is_set() and (wait := begins - self._monotonic()) > 0:
            await wait_first(self._lifted.wait(), seconds=wait)
