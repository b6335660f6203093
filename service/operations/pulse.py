"""Whether the loops of this process still turn, for those who ask if it can do its work."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

LATE = timedelta(seconds=30)  # after its next turn was due


@dataclass
class Pulse:
    """Told of every turn."""

    now: Callable[[], datetime]
    _until: dict[str, datetime] = field(default_factory=dict)

    def beat(self, loop: str, within: timedelta = timedelta(0)) -> None:
        """This loop turns, and is to do so again ``within`` that time."""
        self._until[loop] = self.now() + within + LATE

    @property
    def has_loops(self) -> bool:
        """Whether any loop has turned in this process."""
        return bool(self._until)

    def late(self) -> list[str]:
        """The loops that have not turned for too long."""
        return sorted(name for name, until in self._until.items() if self.now() > until)
