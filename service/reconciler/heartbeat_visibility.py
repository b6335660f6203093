"""Since when nodes have been able to be heard: the service's own deafness is not their silence."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from service.domain.lifecycle.attempt import ALWAYS_AWAKE

_LONGEST_ROUND = timedelta(seconds=30)  # between two rounds of a reconciler that is well


@dataclass
class HeartbeatVisibility:
    """Told of every round that reached the database."""

    awake_since: datetime = ALWAYS_AWAKE
    _last: datetime | None = None

    def round(self, now: datetime) -> None:
        """Begin a round; restart the watch after a gap (a start, a database outage)."""
        self.awake_since = self.since(now)
        self._last = now

    def since(self, now: datetime) -> datetime:
        """Nodes could be heard since then; ``now`` for a process that has just stood still."""
        slept = self._last is None or now - self._last > _LONGEST_ROUND
        return now if slept else self.awake_since

    def record_blindness(self, now: datetime) -> None:
        """No node can reach the service now."""
        self.awake_since = now
