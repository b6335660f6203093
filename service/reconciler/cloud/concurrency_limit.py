"""Limit the concurrent calls to a region in this process.

A call beyond the limit is refused at once and its attempt requeued. If calls waited here instead, a
slow region would hold up the steps of the others.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from service.cloud.provider import Throttled

CONCURRENT_CALLS = 50  # to one region, of the 200 steps of the loop
_USUAL_CALL_TIME = timedelta(seconds=1)
_SHORTEST_WAIT = 2.0  # seconds
_LONGEST_WAIT = timedelta(seconds=28)  # calls that hung may end at any time


class ConcurrencyLimitReached(Throttled):
    """The call was not made: too many calls are under way in this process."""


@dataclass
class ConcurrencyLimit:
    """Counts calls by region."""

    now: Callable[[], datetime]
    limit: int = CONCURRENT_CALLS
    in_progress: Counter[str] = field(default_factory=Counter)
    _next_retry_at: dict[str, datetime] = field(default_factory=dict)  # of the last refused call

    @contextmanager
    def slot(self, region: str) -> Iterator[None]:
        """Count a call until the block ends. Raises ConcurrencyLimitReached at once."""
        if self.in_progress[region] >= self.limit:
            message = f"{self.limit} calls to {region} are under way"
            raise ConcurrencyLimitReached(message, "", self._retry_after(region))
        self.in_progress[region] += 1
        try:
            yield
        finally:
            self.in_progress[region] -= 1

    def _retry_after(self, region: str) -> float:
        """Return seconds to wait; refused calls are spread by the rate at which calls end."""
        now = self.now()
        at = max(self._next_retry_at.get(region, now), now) + _USUAL_CALL_TIME / self.limit
        self._next_retry_at[region] = min(at, now + _LONGEST_WAIT)
        jitter = random.random()  # noqa: S311 - no secret
        return _SHORTEST_WAIT + (self._next_retry_at[region] - now).total_seconds() + jitter
