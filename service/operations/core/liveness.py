"""Liveness of the loops of this process, for health probes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

LATE = timedelta(seconds=30)  # after its next turn was due


@dataclass
class LoopLiveness:
    """Records each turn of each loop."""

    now: Callable[[], datetime]
    _until: dict[str, datetime] = field(default_factory=dict)

    def record_turn(self, loop: str, within: timedelta = timedelta(0)) -> None:
        """Record that the loop turned and will turn again ``within`` that time."""
        self._until[loop] = self.now() + within + LATE

    @property
    def has_loops(self) -> bool:
        """Return whether any loop has turned in this process."""
        return bool(self._until)

    def late_loops(self) -> list[str]:
        """Return the loops that have not turned for too long."""
        return sorted(name for name, until in self._until.items() if self.now() > until)
