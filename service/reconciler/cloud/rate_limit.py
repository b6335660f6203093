"""Make calls to Azure within its rate limits, and none to a region that fails.

All replicas share tokens (`service/db/cloud/rate_limit.py`) and circuits. A call of an attempt that
finds no token is Deferred: it takes a token in advance, and the attempt's row stores the time from
which any replica may make the call. So the attempt waits, and no worker does. A call for no
attempt, such as one of a sweep, takes no token in advance and has its own share of the limits.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from time import perf_counter
from typing import TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine

from service.cloud import engines
from service.cloud.azure import remaining
from service.cloud.provider import CloudError, CloudProvider, Throttled
from service.db.cloud import rate_limit
from service.db.cloud.rate_limit import TokenRequest
from service.db.cloud.scale_set_cache import ALL
from service.db.core.batching import Batcher
from service.db.core.leases import Claim
from service.domain.cloud.fleet import ScaleSet, ScaleSetSpec, SpotCores, TaggedResource
from service.domain.cloud.rate_limit import (
    BUCKETS,
    LONGEST_WAIT,
    SWEEP_SHARE,
    SWEEPS,
    SWEPT,
    TOKENS,
    CloudCall,
    Deferral,
    RequestKind,
    TokenBucket,
)
from service.instruments import AZURE_CALL, AZURE_DEFERRED, AZURE_REMAINING
from service.reconciler.cloud.circuit_breaker import CircuitBreaker, CircuitOpen
from service.reconciler.cloud.concurrency_limit import (
    CONCURRENT_CALLS,
    ConcurrencyLimit,
    ConcurrencyLimitReached,
)

T = TypeVar("T")
_EVERYTHING = "resources"  # another part of Azure: its failures say nothing of scale sets
_LOW = 0.5  # share of a bucket; below it, the remaining count that Azure reports is stored


class Deferred(Throttled):
    """The call was not made, or Azure refused it: retry from ``deferral.until`` on."""

    def __init__(self, message: str, deferral: Deferral, now: datetime, code: str = "") -> None:
        """Retry after the time from ``now`` to ``deferral.until``; ``code``: of Azure's answer."""
        super().__init__(message, code, max((deferral.until - now).total_seconds(), 0.0))
        self.deferral = deferral


def deferral_of(faults: Collection[Exception]) -> Deferral | None:
    """Return the deferred call among these faults, for the attempt's row; None if none is."""
    kept = (f.deferral for f in faults if isinstance(f, Deferred | ConcurrencyLimitReached))
    return next((deferral for deferral in kept if deferral), None)


@dataclass
class _MeasuredCall:
    """One operation, for the metrics: how long Azure took, or why it was not called."""

    operation: CloudCall
    region: str
    made: bool = False

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Count a refusal of our own."""
        try:
            yield
        except Throttled as refusal:
            if not self.made:
                reason = _REASONS.get(type(refusal), "rate_limit")
                AZURE_DEFERRED.add(self.operation, self.region, reason)
            raise

    async def time(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make the call and record its duration."""
        self.made, began, result = True, perf_counter(), "unexpected"
        try:
            answer = await call()
        except CloudError as fault:
            result = type(fault).__name__
            raise
        else:
            result = "ok"
            return answer
        finally:
            seconds = perf_counter() - began
            AZURE_CALL.observe(self.operation, self.region, result, value=seconds)


_REASONS: dict[type[Throttled], str] = {
    ConcurrencyLimitReached: "concurrency",
    CircuitOpen: "circuit",
}


@dataclass
class RateLimitedCloud:
    """The cloud behind rate limits, circuit breakers and a concurrency limit, by region."""

    engine: AsyncEngine
    cloud: CloudProvider
    now: Callable[[], datetime]
    concurrency: int = CONCURRENT_CALLS
    times: float = 1.0  # the subscription's limits as a multiple of Microsoft's table

    def at(
        self,
        region: str,
        claim: Claim | None = None,
        first: Callable[[], Awaitable[object]] | None = None,
    ) -> "RateLimitedRegion":
        """Return the cloud in this region.

        ``claim``: of the attempt that calls; None: a sweep calls. ``first`` is awaited right before
        a call, after its wait for tokens.
        """
        return RateLimitedRegion(limited_cloud=self, region=region, claim=claim, first=first)

    async def ask(
        self,
        region: str,
        call: CloudCall,
        make: Callable[[], Awaitable[T]],
        claim: Claim | None = None,
        first: Callable[[], Awaitable[object]] | None = None,
    ) -> T:
        """Make the call if it may be made now.

        Raises Deferred, ConcurrencyLimitReached, CircuitOpen, and Throttled where a call for no
        attempt finds no token; whatever ``first`` and ``make`` raise.
        """
        measured = _MeasuredCall(call, region)
        with measured.deferred():
            deferral = self.deferral(claim)
            permit = deferral if deferral and deferral.call is call else None
            if permit and permit.is_pending(self.now()):
                raise self._deferred(region, permit)
            with self._limit.slot(region, permit):
                probes = await self._circuits.admit(region)
                if permit is None:
                    await self._take(region, call, claim, deferral, probes=probes)
                if first is not None:
                    await first()
                with remaining.gather_remaining() as left:
                    try:
                        answer = await measured.time(make)
                    except CloudError as fault:
                        await self._circuits.record_failure(region, fault, probed=probes)
                        raise self._kept(fault, call, claim) from fault
                    finally:
                        await self._learn(region, left)
            await self._circuits.record_success(region)
            return answer

    def deferral(self, claim: Claim | None) -> Deferral | None:
        """Return the deferred call in the attempt's row, or None once its time has passed."""
        if claim is None or claim.row.deferred_call is None:
            return None
        call, now = CloudCall(claim.row.deferred_call), self.now()
        found = Deferral(call=call, until=claim.row.deferred_until)
        return found if found.is_pending(now) or found.is_due(now) else None

    async def _take(
        self,
        region: str,
        call: CloudCall,
        claim: Claim | None,
        other: Deferral | None,
        *,
        probes: bool,
    ) -> None:
        """Take the call's tokens. Raises Deferred, or Throttled if the call cannot be deferred.

        An attempt has one deferred call at a time: with ``other`` pending, this call takes tokens
        only if the buckets have them now.
        """
        if not TOKENS[call]:
            return
        request = self._tokens(region, call, sweeps=claim is None)
        pending = other if other and other.is_pending(self.now()) else None
        if claim is not None and not pending and not probes:
            if wait := await self._batch.do(request):
                raise self._deferred(region, Deferral(call=call, until=self.now() + wait))
            return
        async with self.engine.begin() as conn:  # what is taken in vain is rolled back
            (wait,) = await rate_limit.take(conn, [request], self.now())
            if wait and pending and not probes:
                raise self._deferred(region, pending)
            if wait and not probes:
                message = f"The rate limit of {call} in {region} is reached"
                raise Throttled(message, "", wait.total_seconds())

    @cached_property
    def _batch(self) -> Batcher[TokenRequest, timedelta]:
        return Batcher(self._take_all)

    async def _take_all(self, requests: Sequence[TokenRequest]) -> list[timedelta]:
        async with self.engine.begin() as conn:
            return await rate_limit.take(conn, requests, self.now())

    def _tokens(self, region: str, call: CloudCall, *, sweeps: bool) -> TokenRequest:
        """Return the buckets of a call; ``sweeps``: it is made for no attempt."""
        buckets = {}
        for kind in TOKENS[call]:
            apart = sweeps and kind in SWEPT and region != ALL
            buckets[kind + SWEEPS if apart else kind] = self._bucket(region, kind, sweeps=sweeps)
        return TokenRequest(region=region, buckets=buckets)

    def _bucket(self, region: str, kind: RequestKind, *, sweeps: bool) -> TokenBucket:
        """Return the bucket, or a share of it if both attempts and sweeps make such requests."""
        share = 1.0
        if kind in SWEPT and region != ALL:
            share = SWEEP_SHARE if sweeps else 1 - SWEEP_SHARE
        return BUCKETS[kind].scaled(share * self.times)

    def _deferred(self, region: str, deferral: Deferral) -> Deferred:
        message = f"The rate limit of {deferral.call} in {region} is reached"
        return Deferred(message, deferral, self.now())

    def _kept(self, fault: CloudError, call: CloudCall, claim: Claim | None) -> CloudError:
        """Return Azure's 429 as Deferred, so that the attempt waits for Azure's Retry-After."""
        if claim is None or not isinstance(fault, Throttled):
            return fault
        wait = min(timedelta(seconds=fault.retry_after), LONGEST_WAIT)
        deferral = Deferral(call=call, until=self.now() + wait)
        return Deferred(str(fault), deferral, self.now(), fault.code or "Throttled")

    async def _learn(self, region: str, left: dict[str, int]) -> None:
        for kind in RequestKind:
            found = left.get(kind)
            if found is None:
                continue
            AZURE_REMAINING.set(region, kind, value=found)
            bucket = self._bucket(region, kind, sweeps=False)
            if found < _LOW * bucket.size:
                async with self.engine.begin() as conn:
                    await rate_limit.correct(conn, region, kind, bucket, found, self.now())

    @cached_property
    def _limit(self) -> ConcurrencyLimit:
        return ConcurrencyLimit(now=self.now, limit=self.concurrency)

    @cached_property
    def _circuits(self) -> CircuitBreaker:
        return CircuitBreaker(engine=self.engine, now=self.now)


@dataclass(frozen=True, kw_only=True)
class RateLimitedRegion:
    """The cloud's operations in one region: each as in CloudProvider, and raises as `ask` does."""

    limited_cloud: RateLimitedCloud
    region: str
    claim: Claim | None = None
    first: Callable[[], Awaitable[object]] | None = None

    async def create(self, spec: ScaleSetSpec) -> None:
        """Begin creating a scale set."""
        await self._ask(CloudCall.CREATE, lambda: self._cloud.create(spec))

    async def get(self, name: str) -> ScaleSet:
        """Describe a scale set with its instances."""
        return await self._ask(CloudCall.GET, lambda: self._cloud.get(name))

    async def list_owned(self) -> list[ScaleSet]:
        """List the scale sets of this deployment."""
        return await self._ask(CloudCall.LIST, self._cloud.list_owned)

    async def list_tagged(self) -> list[TaggedResource]:
        """List all else that carries this deployment's tag."""
        call = self._cloud.list_tagged
        return await self.limited_cloud.ask(_EVERYTHING, CloudCall.LIST_TAGGED, call)

    async def refill(self, name: str, instance_count: int, useless: Collection[str] = ()) -> None:
        """Begin replacing instances that were taken."""
        await self._ask(CloudCall.REFILL, lambda: self._cloud.refill(name, instance_count, useless))

    async def delete(self, name: str) -> None:
        """Begin deleting a scale set."""
        await self._ask(CloudCall.DELETE, lambda: self._cloud.delete(name))

    async def serial_log(self, name: str, instance_id: str) -> bytes:
        """Fetch what a machine printed to its serial console."""
        return await self._ask(
            CloudCall.SERIAL_LOG, lambda: self._cloud.serial_log(name, instance_id)
        )

    async def spot_cores(self, region: str) -> SpotCores:
        """Return how many Spot cores the subscription may use in ``region``."""
        return await self.limited_cloud.ask(
            region, CloudCall.SPOT_CORES, lambda: self._cloud.spot_cores(region)
        )

    async def close(self) -> None:
        """Do nothing: the caller that made the cloud closes it."""

    async def _ask(self, call: CloudCall, make: Callable[[], Awaitable[T]]) -> T:
        return await self.limited_cloud.ask(self.region, call, make, self.claim, self.first)

    @property
    def _cloud(self) -> CloudProvider:
        cloud = self.limited_cloud.cloud
        return cloud if self.region == ALL else engines.at(cloud, self.region)
