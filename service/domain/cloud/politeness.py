"""How often Azure may be asked, by kind of request and region, and when not to ask at all. Pure.

The buckets are Microsoft's for one subscription and region; what an answer says is left corrects
our own count downwards, since others may use the subscription too.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

FAILURES = 5  # in a row, then the region is left alone for a while
_SHORTEST, _LONGEST = timedelta(seconds=5), timedelta(minutes=5)
FAR = 2 * _LONGEST  # nothing is so far ahead: a clock that was has set it
PROBE = timedelta(seconds=40)  # more than one call takes: so long one alone finds out
BLOCK = 10  # tokens that a process takes at a time, at least
KEPT = timedelta(seconds=10)  # and how long it may keep them


class Kind(StrEnum):
    """Classes of requests that Azure counts by themselves, by the name it gives them."""

    CREATE = "CreateVMScaleSet"
    UPDATE = "UpdateVMScaleSet"
    DELETE = "DeleteVMScaleSet"
    GET = "GetVMScaleSet"
    LIST = "HighCostGetVMScaleSet"  # and instances and instance views


@dataclass(frozen=True)
class Limit:
    """A bucket: its size, and what comes back in a minute."""

    size: float
    a_minute: float

    def times(self, factor: float) -> "Limit":
        """Of a subscription whose limits Azure has raised."""
        return Limit(self.size * factor, self.a_minute * factor)

    @property
    def block(self) -> int:
        """Tokens that a process takes at a time: of a large bucket a hundredth."""
        return max(BLOCK, int(self.size / 100))

    @property
    def apart(self) -> timedelta:
        """Between two requests that never stop."""
        return timedelta(minutes=1 / self.a_minute)


LIMITS = {  # Microsoft's table of 2026-11, for one subscription and region
    Kind.CREATE: Limit(375, 125),
    Kind.UPDATE: Limit(1500, 500),
    Kind.DELETE: Limit(525, 175),
    Kind.GET: Limit(2400, 800),
    Kind.LIST: Limit(1080, 360),
}


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """There were so many tokens at that time."""

    tokens: float
    at: datetime


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What became of asking for tokens."""

    bucket: Bucket
    granted: int


def full(limit: Limit, now: datetime) -> Bucket:
    """A bucket that nobody has used."""
    return Bucket(tokens=limit.size, at=now)


def take(limit: Limit, bucket: Bucket, wanted: int, now: datetime) -> Taken:
    """As many of ``wanted`` as there are. Replicas' clocks differ: time never runs backwards."""
    at = bucket.at if bucket.at <= now + FAR else now
    now = max(now, at)
    back = (now - at) / limit.apart
    tokens = min(bucket.tokens + back, limit.size)
    granted = min(wanted, int(tokens))
    return Taken(bucket=Bucket(tokens=tokens - granted, at=now), granted=granted)


def corrected(bucket: Bucket, remaining: int, unspent: int) -> Bucket:
    """After an answer that so many are left, of which processes hold ``unspent`` already."""
    return replace(bucket, tokens=min(bucket.tokens, max(remaining - unspent, 0)))


@dataclass(frozen=True, kw_only=True)
class Circuit:
    """How a region has answered lately."""

    failures: int = 0  # in a row
    shut_until: datetime | None = None

    def is_shut(self, now: datetime) -> bool:
        """True while nobody asks there."""
        return self.shut_until is not None and now < self.shut_until <= now + FAR

    @property
    def is_tried(self) -> bool:
        """True from the first time that it was shut: one alone asks, and all follow."""
        return self.shut_until is not None


def failed(circuit: Circuit, now: datetime, jitter: float) -> Circuit:
    """After a failure of the region; ``jitter`` in [0, 1) keeps replicas and regions apart."""
    failures = circuit.failures + 1
    if failures < FAILURES:
        return replace(circuit, failures=failures)
    pause = min(_SHORTEST * 2 ** min(failures - FAILURES, 10), _LONGEST)
    return Circuit(failures=failures, shut_until=now + pause * (0.5 + jitter))
