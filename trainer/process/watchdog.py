"""End this process, after printing all stacks, once training hangs.

Python's fault handler does it, in a thread that needs no interpreter lock: it also ends a process
that hangs in a driver call or a collective.
"""

import faulthandler
from collections import deque
from collections.abc import Callable
from statistics import median

LONG_SECONDS = 1800.0  # seconds to load, or to export
MIN_SECONDS = 900.0  # longer than the timeout of a collective, whose error is more specific
PAUSE_FACTOR = 20  # the usual pause between two micro-steps


class Watchdog:
    """Watches from its creation on."""

    def __init__(
        self, now: Callable[[], float], *, long: float = LONG_SECONDS, floor: float = MIN_SECONDS
    ) -> None:
        self._now, self._long_seconds, self._min_seconds = now, long, floor
        self._pauses: deque[float] = deque(maxlen=50)
        self._progress_at: float | None = None
        self.expect_long()

    def expect_long(self) -> None:
        """Allow for a long operation: loading, or the export."""
        self._progress_at = None
        _end_after(self._long_seconds)

    def record_progress(self) -> None:
        """Record that training has reached its next micro-step."""
        now = self._now()
        if self._progress_at is not None:
            self._pauses.append(now - self._progress_at)
        self._progress_at = now
        _end_after(self.timeout_seconds)

    @property
    def timeout_seconds(self) -> float:
        """Seconds that training may make no progress."""
        return (
            max(self._min_seconds, PAUSE_FACTOR * median(self._pauses))
            if self._pauses
            else self._long_seconds
        )


def _end_after(seconds: float) -> None:
    faulthandler.dump_traceback_later(seconds, exit=True)
