"""Since when this process has been able to hear nodes: its own deafness is not their silence."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_EVER = datetime.min.replace(tzinfo=UTC)
_LONGEST_ROUND = timedelta(seconds=30)  # between two rounds of a reconciler that is well


@dataclass
class Watch:
    """Told of every round that reached the database."""

    awake_since: datetime = _EVER
    _last: datetime | None = None

    def round(self, now: datetime) -> None:
        """A round begins; after a gap (a start, a database outage) the watch begins afresh."""
        if self._last is None or now - self._last > _LONGEST_ROUND:
            self.awake_since = now
        self._last = now
