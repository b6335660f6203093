"""Rate and concurrency limits of a key and a project in this process.

Counts are of one process and in memory: docs/adr/0062-request-limits.md says why.
"""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from throttled import RateLimiterRegistry, per_min
from throttled.store import MemoryStore

from service.domain.errors import RateLimited
from service.domain.queue.project_limits import REQUESTS_PER_MINUTE

_MAX_KEYS = 65_536  # counted at once; beyond that the least recently used key is dropped
_MINUTE = 60  # seconds
_RETRY_SECONDS = 5  # seconds after which a slot may be free


@dataclass(frozen=True, kw_only=True)
class RateLimitState:
    """The remaining rate limit of a key after a request."""

    limit: int
    remaining: int
    resets_in: float  # seconds until all are left again
    retry_in: float  # seconds until the next request is allowed; 0: this one is

    def headers(self) -> dict[str, str]:
        """Return the headers of OpenAI and of the IETF's draft."""
        seconds = math.ceil(self.resets_in)
        return {
            "x-ratelimit-limit-requests": str(self.limit),
            "x-ratelimit-remaining-requests": str(self.remaining),
            "x-ratelimit-reset-requests": f"{seconds}s",
            "ratelimit-policy": f'"requests";q={self.limit};w={_MINUTE}',
            "ratelimit": f'"requests";r={self.remaining};t={seconds}',
        }

    def require_room(self) -> None:
        """Raise RateLimited if the key has sent too many requests."""
        if self.retry_in > 0:
            seconds = math.ceil(self.retry_in)
            raise RateLimited(
                f"This key has sent more than {self.limit} requests in a minute. Send the next one "
                f"in {seconds} s; `?wait=60` or a stream follows a job without polling.",
                retry_after=seconds,
            )


class RateLimits:
    """Counts the requests of each key; an unused minute restores its whole limit."""

    def __init__(self, per_minute: int = REQUESTS_PER_MINUTE) -> None:
        store = MemoryStore(options={"MAX_SIZE": _MAX_KEYS})
        quota = per_min(per_minute, burst=per_minute)
        self._limiter = RateLimiterRegistry.get("gcra")(quota, store)

    def count(self, key_id: str) -> RateLimitState:
        """Count a request of this key."""
        result = self._limiter.limit(key_id)
        state = result.state
        return RateLimitState(
            limit=state.limit,
            remaining=0 if result.limited else state.remaining,
            resets_in=state.reset_after,
            retry_in=state.retry_after if result.limited else 0.0,
        )


class WorkKind(Enum):
    """A kind of concurrent work; the value is its name in messages."""

    UPLOAD = "uploads of files"
    PART = "parts of uploads"
    POLL = "long polls and streams"
    LONG_BODY = "requests with a large body"


DEFAULT_CONCURRENCY = {
    WorkKind.UPLOAD: 32,
    WorkKind.PART: 256,
    WorkKind.POLL: 1000,
    WorkKind.LONG_BODY: 16,
}


class ConcurrencyLimits:
    """Concurrency limits of each kind and project."""

    def __init__(self, most: dict[WorkKind, int] | None = None) -> None:
        self._limits = DEFAULT_CONCURRENCY | (most or {})
        self._slots_in_use: Counter[tuple[WorkKind, str]] = Counter()

    @contextmanager
    def slot(self, kind: WorkKind, project_id: str) -> Iterator[None]:
        """Hold a slot in the context; raises RateLimited where the project has none left."""
        name, limit = (kind, project_id), self._limits[kind]
        if self._slots_in_use[name] >= limit:
            raise RateLimited(
                f"This project has reached its limit of {limit} concurrent {kind.value}. Retry "
                "when one of them has finished.",
                retry_after=_RETRY_SECONDS,
            )
        self._slots_in_use[name] += 1
        try:
            yield
        finally:
            self._slots_in_use[name] -= 1
            if not self._slots_in_use[name]:
                del self._slots_in_use[name]
