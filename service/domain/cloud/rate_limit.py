"""Token buckets for calls to Azure, by kind of request and region. Pure.

A bucket may be in debt: the k-th caller without a token takes one in advance and calls ``k / rate``
later. The sizes are Microsoft's for one subscription and region. Azure's answers report how many
requests remain; a lower number replaces our count, since others may use the subscription too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

FAR = timedelta(minutes=10)  # a bucket's time further ahead was written by a wrong clock
LONGEST_WAIT = timedelta(hours=1)  # for tokens; a longer wait was written by a wrong clock
PERMIT_LIFE = timedelta(minutes=1)  # after that the tokens of a deferred call are lost
SWEEPS = ".sweeps"  # suffix of the names of the buckets for calls of sweeps


class RequestKind(StrEnum):
    """Classes of requests that Azure counts apart, by Azure's names."""

    CREATE = "CreateVMScaleSet"
    UPDATE = "UpdateVMScaleSet"
    DELETE = "DeleteVMScaleSet"
    GET = "GetVMScaleSet"
    LIST = "HighCostGetVMScaleSet"  # and instances and instance views


class CloudCall(StrEnum):
    """Operations of the cloud, as in the labels of metrics and in ``attempts.deferred_call``."""

    CREATE = "create"
    GET = "get"
    REFILL = "refill"
    DELETE = "delete"
    LIST = "list"
    LIST_TAGGED = "list_tagged"
    SERIAL_LOG = "serial_log"
    SPOT_CORES = "spot_cores"


TOKENS: Mapping[CloudCall, tuple[RequestKind, ...]] = {  # buckets of which a call takes a token
    CloudCall.CREATE: (RequestKind.CREATE,),
    CloudCall.GET: (RequestKind.GET, RequestKind.LIST),
    CloudCall.REFILL: (RequestKind.GET, RequestKind.LIST, RequestKind.UPDATE),
    CloudCall.DELETE: (RequestKind.DELETE,),
    CloudCall.LIST: (RequestKind.LIST,),
    CloudCall.LIST_TAGGED: (),  # another part of Azure counts it
    CloudCall.SERIAL_LOG: (),  # rare
    CloudCall.SPOT_CORES: (),  # once a minute and region
}


@dataclass(frozen=True)
class TokenBucket:
    """A bucket: its size, and how many tokens come back in a minute."""

    size: float
    per_minute: float

    def scaled(self, factor: float) -> "TokenBucket":
        """Return a share of it, or the bucket of a subscription whose limits Azure has raised."""
        return TokenBucket(self.size * factor, self.per_minute * factor)

    @property
    def per_second(self) -> float:
        """Return how many tokens come back in a second."""
        return self.per_minute / 60

    def wait(self, balance: float) -> timedelta:
        """Return how long it takes until a bucket with ``balance`` tokens owes none."""
        seconds = max(-balance, 0) / self.per_second
        return min(timedelta(seconds=seconds), LONGEST_WAIT)


BUCKETS: Mapping[RequestKind, TokenBucket] = {  # Microsoft's table of 2026-11
    RequestKind.CREATE: TokenBucket(375, 125),
    RequestKind.UPDATE: TokenBucket(1500, 500),
    RequestKind.DELETE: TokenBucket(525, 175),
    RequestKind.GET: TokenBucket(2400, 800),
    RequestKind.LIST: TokenBucket(1080, 360),
}
# Sweeps have buckets of their own: they cannot wait in line, and a long line must not stop them.
SWEEP_SHARE = 0.1  # of the requests that sweeps make as well as attempts
SWEPT = frozenset({RequestKind.DELETE, RequestKind.GET, RequestKind.LIST})


@dataclass(frozen=True, kw_only=True)
class Deferral:
    """A call that an attempt may make from ``until`` on; its tokens have been taken."""

    call: CloudCall
    until: datetime

    def is_pending(self, now: datetime) -> bool:
        """Return whether the call may not be made yet."""
        return now < self.until <= now + LONGEST_WAIT

    def is_due(self, now: datetime) -> bool:
        """Return whether the call may be made without taking tokens again."""
        return self.until <= now <= self.until + PERMIT_LIFE
