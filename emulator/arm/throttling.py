"""How often may be asked: ARM's own limits, and those of Microsoft.Compute per region.

Both are token buckets; their sizes are those of Microsoft's tables "Compute throttling limits"
and "Request limits and throttling". Every answer tells what is left. Only with
`--throttling azure` is anything refused; else the buckets are so large that none runs dry. They
are kept in memory: after a restart all are full.
"""

import json
import math
import re
from dataclasses import dataclass

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from emulator.arm.throttling_policies import ARM_LIMITS, BucketLimit, policy_of
from emulator.core.timestamps import timestamp
from emulator.fabric import Fabric

PLENTY = 1_000_000  # times the limit, where nothing is to be refused
MAX_BUCKETS = 20_000  # buckets; when there are more, those that are full again are dropped
SUBSCRIPTION = re.compile(r"/subscriptions/([^/]+)")
GROUP = re.compile(r"/subscriptions/[^/]+/resourcegroups/[^/]+")
SCALE_SET = re.compile(
    r"/subscriptions/[^/]+/resourcegroups/[^/]+/providers/microsoft\.compute"
    r"/virtualmachinescalesets/[^/]+"
)
REMAINING = "x-ms-ratelimit-remaining-resource"
Key = tuple[str, ...]


@dataclass
class RefillBucket:
    """Tokens that come back a portion at a time."""

    limit: BucketLimit
    tokens: int
    filled_at: float
    refused: int = 0  # since the last portion

    def fill(self, now: float) -> None:
        """Add what has come back since it was last looked at."""
        portions = int((now - self.filled_at) // self.limit.every)
        if portions > 0:
            self.tokens = min(self.tokens + portions * self.limit.refill, self.limit.capacity)
            self.filled_at += portions * self.limit.every
            self.refused = 0

    def wait(self, now: float) -> int:
        """Whole seconds until the next portion."""
        return max(math.ceil(self.filled_at + self.limit.every - now), 1)


class ThrottlingMiddleware:
    """ASGI middleware: counts, tells what is left, and refuses what is too much."""

    def __init__(self, app: ASGIApp, *, fabric: Fabric) -> None:
        self._app = app
        self._fabric = fabric
        self._times = 1 if fabric.settings.throttling == "azure" else PLENTY
        self._buckets: dict[Key, RefillBucket] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a token from every bucket that the request is measured by, or refuse it."""
        path = str(scope.get("path", "")).lower()
        match = SUBSCRIPTION.match(path)
        if scope["type"] != "http" or not match:
            await self._app(scope, receive, send)
            return
        now, kind = self._fabric.now(), ARM_LIMITS.get(scope["method"], "writes")
        arm = self._bucket(("arm", match[1], kind), BucketLimit.of_arm(kind), now)
        buckets = self._compute_buckets(scope["method"], path, match[1], now)
        charges = [(f"x-ms-ratelimit-remaining-subscription-{kind}", arm, "")]
        charges += [(REMAINING, bucket, f"Microsoft.Compute/{name};") for name, bucket in buckets]
        refusal: Response | None = None
        if arm.tokens < 1:
            refusal = _too_many_for_arm(kind, match[1], arm.wait(now))
        elif empty := next(((n, b) for n, b in buckets if b.tokens < 1), None):
            refusal = _refusal(*empty, now)
        else:
            for _, bucket, _ in charges:
                bucket.tokens -= 1
        await (refusal or self._app)(scope, receive, _with_remaining_headers(send, charges))

    def _compute_buckets(
        self, method: str, path: str, subscription: str, now: float
    ) -> list[tuple[str, RefillBucket]]:
        """Return the buckets of Microsoft.Compute, by their names in headers."""
        policy = policy_of(method, path, exists=path in self._fabric.state.scale_sets)
        if policy is None:
            return []
        rows: list[tuple[str, RefillBucket]] = []
        if policy.resource:
            named = re.match(rf".*?{policy.measured}", path)
            key = ("resource", policy.name, named[0] if named else path)
            rows.append((f"{policy.name}Resource", self._bucket(key, policy.resource, now)))
        scope_key = ("subscription", policy.name, subscription, self._region(path))
        bucket = self._bucket(scope_key, policy.subscription, now)
        return [*rows, (f"{policy.name}SubscriptionMaximum", bucket)]

    def _region(self, path: str) -> str:
        """Return the region of the scale set in the path, or else that of its group."""
        state = self._fabric.state
        if (match := SCALE_SET.match(path)) and match[0] in state.scale_sets:
            return state.scale_sets[match[0]].location
        if (match := GROUP.match(path)) and match[0] in state.groups:
            return state.groups[match[0]].location
        return ""

    def _bucket(self, key: Key, limit: BucketLimit, now: float) -> RefillBucket:
        if len(self._buckets) > MAX_BUCKETS:
            self._drop_full(now)
        if key not in self._buckets:
            refill, capacity = limit.refill * self._times, limit.capacity * self._times
            large = BucketLimit(refill, capacity, limit.every)
            self._buckets[key] = RefillBucket(large, large.capacity, now)
        self._buckets[key].fill(now)
        return self._buckets[key]

    def _drop_full(self, now: float) -> None:
        for key, bucket in list(self._buckets.items()):
            bucket.fill(now)
            if bucket.tokens >= bucket.limit.capacity:
                del self._buckets[key]


def _with_remaining_headers(send: Send, charges: list[tuple[str, RefillBucket, str]]) -> Send:
    """Send with the headers; a planted fault that has its own keeps them."""

    async def send_telling(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            has_remaining = REMAINING in headers
            for name, bucket, prefix in charges:
                if not (has_remaining and name == REMAINING):
                    headers.append(name, f"{prefix}{bucket.tokens}")
            if len(charges) > 1:
                headers["x-ms-request-charge"] = "1"
        await send(message)

    return send_telling


def _too_many_for_arm(kind: str, subscription: str, wait: int) -> Response:
    message = (
        f"Number of '{kind.removesuffix('s')}' requests for subscription '{subscription}' "
        f"exceeded. Please try again after '{wait}' seconds."
    )
    error = {"code": "SubscriptionRequestsThrottled", "message": message}
    return JSONResponse({"error": error}, 429, {"Retry-After": str(wait)})


def too_many(
    name: str, window: tuple[float, float], allowed: int, measured: int
) -> dict[str, object]:
    """Return the error with which Microsoft.Compute throttles, as JSON travels."""
    measurement = {
        "operationGroup": name,
        "startTime": timestamp(window[0]),
        "endTime": timestamp(window[1]),
        "allowedRequestCount": allowed,
        "measuredRequestCount": measured,
    }
    return {
        "code": "OperationNotAllowed",
        "message": "The server rejected the request because too many requests have been received "
        "for this subscription.",
        "details": [
            {"code": "TooManyRequests", "target": name, "message": json.dumps(measurement)}
        ],
    }


def _refusal(name: str, bucket: RefillBucket, now: float) -> Response:
    bucket.refused += 1
    window = (bucket.filled_at, bucket.filled_at + bucket.limit.every)
    capacity = bucket.limit.capacity
    error = too_many(name, window, capacity, capacity + bucket.refused)
    return JSONResponse({"error": error}, 429, {"Retry-After": str(bucket.wait(now))})
