"""Whether the loops of this process still turn, for those who ask if it can do its work."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

LATE = timedelta(seconds=30)  # a loop that is well turns every second


@dataclass
class Pulse:
    """Told of every turn."""

    now: Callable[[], datetime]
    _turned: dict[str, datetime] = field(default_factory=dict)

    def beat(self, loop: str) -> None:
        """This loop has begun a turn."""
        self._turned[loop] = self.now()

    def late(self) -> list[str]:
        """The loops that have not turned for too long."""
        return sorted(name for name, at in self._turned.items() if self.now() - at > LATE)
