"""Liveness of the loops of this process, for health probes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

GRACE = timedelta(seconds=30)  # after its next turn was due


@dataclass
class LoopLiveness:
    """Records each turn of each loop."""

    now: Callable[[], datetime]
    _due_by_loop: dict[str, datetime] = field(default_factory=dict)

    def record_turn(self, loop: str, within: timedelta = timedelta(0)) -> None:
        """Record that the loop turned and will turn again ``within`` that time."""
        self._due_by_loop[loop] = self.now() + within + GRACE

    @property
    def has_loops(self) -> bool:
        """Return whether any loop has turned in this process."""
        return bool(self._due_by_loop)

    def late_loops(self) -> list[str]:
        """Return the loops that have not turned for too long."""
        return sorted(name for name, until in self._due_by_loop.items() if self.now() > until)
