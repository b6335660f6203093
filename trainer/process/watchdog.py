"""Ends this process, all its stacks printed, once training has stood still for far too long.

Python's own fault handler does it, in a thread that needs no interpreter lock: a process that
hangs in a driver's call, or in a collective, is ended like any other.
"""

import faulthandler
from collections import deque
from collections.abc import Callable
from statistics import median

LONG_SECONDS = 1800.0  # seconds to load, or to export
MIN_SECONDS = 900.0  # beyond the time-out of a collective, whose error says more
PAUSE_FACTOR = 20  # the usual pause between two micro-steps


class Watchdog:
    """Watches from the moment it is made."""

    def __init__(
        self, now: Callable[[], float], *, long: float = LONG_SECONDS, floor: float = MIN_SECONDS
    ) -> None:
        self._now, self._long, self._floor = now, long, floor
        self._pauses: deque[float] = deque(maxlen=50)
        self._moved_at: float | None = None
        self.expect_long()

    def expect_long(self) -> None:
        """What comes now is no training step: loading, or the export."""
        self._moved_at = None
        _end_after(self._long)

    def moved(self) -> None:
        """Training has come to its next micro-step."""
        now = self._now()
        if self._moved_at is not None:
            self._pauses.append(now - self._moved_at)
        self._moved_at = now
        _end_after(self.patience)

    @property
    def patience(self) -> float:
        """For how long training may stand still."""
        return max(self._floor, PAUSE_FACTOR * median(self._pauses)) if self._pauses else self._long


def _end_after(seconds: float) -> None:
    faulthandler.dump_traceback_later(seconds, exit=True)
