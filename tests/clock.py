"""A clock that only tests move."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass
class Clock:
    """Callable that returns an aware time; only ``advance`` moves it."""

    at: datetime = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.at

    def advance(self, **kwargs: float) -> datetime:
        """Move the clock by a timedelta's keywords, e.g. ``minutes=3``, and return the new time."""
        self.at += timedelta(**kwargs)
        return self.at
