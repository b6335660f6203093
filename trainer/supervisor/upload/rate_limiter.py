"""Rate limit of uploads during training, so that they leave bandwidth to the training."""

import asyncio
from collections.abc import Callable

from trainer.supervisor.concurrency import wait_first


class UploadRateLimiter:
    """Delays bytes to keep a rate, until the cap is lifted."""

    def __init__(self, bytes_per_second: float, monotonic: Callable[[], float]) -> None:
        self._rate, self._monotonic = bytes_per_second, monotonic
        self._free_at = 0.0  # when everything admitted so far is sent at that rate
        self._lifted = asyncio.Event()

    def lift_cap(self) -> None:
        """Stop limiting: the machine is about to go."""
        self._lifted.set()

    async def wait_for_turn(self, size: int) -> None:
        """Return when ``size`` more bytes may be sent."""
        begins = max(self._free_at, self._monotonic())
        self._free_at = begins + size / self._rate
        while not self._lifted.is_set() and (wait := begins - self._monotonic()) > 0:
            await wait_first(self._lifted.wait(), seconds=wait)
