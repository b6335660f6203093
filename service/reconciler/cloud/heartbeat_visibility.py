"""Track since when nodes can reach the service: its own outage does not count as their silence."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from service.domain.lifecycle.attempt import ALWAYS_AWAKE

_LONGEST_ROUND = timedelta(seconds=30)  # between two rounds of a healthy reconciler


@dataclass
class HeartbeatVisibility:
    """Records the rounds of the reconciler that reached the database."""

    awake_since: datetime = ALWAYS_AWAKE
    _last_round: datetime | None = None

    def record_round(self, now: datetime) -> None:
        """Record a round; after a gap (a start, a database outage) nodes count as heard anew."""
        self.awake_since = self.heard_since(now)
        self._last_round = now

    def heard_since(self, now: datetime) -> datetime:
        """Return since when nodes could be heard; ``now`` if no round was recorded lately."""
        was_suspended = self._last_round is None or now - self._last_round > _LONGEST_ROUND
        return now if was_suspended else self.awake_since

    def record_blindness(self, now: datetime) -> None:
        """Record that no node can reach the service now."""
        self.awake_since = now
