"""Make calls to Azure within its rate limits, and none to a region that fails.

All replicas share tokens (`service/db/cloud/rate_limit.py`) and circuits. A call of an attempt that
finds no token is Deferred: it takes a token in advance, and the attempt's row stores the time from
which any replica may make the call. So the attempt waits, and no worker does. A call for no
attempt, such as one of a sweep, takes no token in advance: it has its own share of the limits, and
what attempts leave of theirs.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from time import perf_counter
from typing import ParamSpec, TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine

from service.cloud import engines
from service.cloud.azure import remaining
from service.cloud.provider import CloudError, CloudProvider, Throttled
from service.db.cloud import offerings, rate_limit
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
)
from service.instruments import AZURE_CALL, AZURE_DEFERRED, AZURE_REMAINING
from service.reconciler.cloud.circuit_breaker import CircuitBreaker, CircuitOpen
from service.reconciler.cloud.concurrency_limit import (
    CONCURRENT_CALLS,
    ConcurrencyLimit,
    ConcurrencyLimitReached,
)

P = ParamSpec("P")
T = TypeVar("T")
_RESOURCE_GRAPH = "resources"  # another part of Azure: its failures say nothing of scale sets
_LOW_SHARE = 0.5  # share of a bucket; below it, the remaining count that Azure reports is stored
_DEFERRAL_REASONS: dict[type[Throttled], str] = {
    ConcurrencyLimitReached: "concurrency",
    CircuitOpen: "circuit",
}


class Deferred(Throttled):
    """The call was not made, or Azure refused it: retry from ``deferral.until`` on."""

    def __init__(self, message: str, deferral: Deferral, now: datetime, code: str = "") -> None:
        """Retry after the time from ``now`` to ``deferral.until``; ``code``: of Azure's answer."""
        super().__init__(message, code, max((deferral.until - now).total_seconds(), 0.0))
        self.deferral = deferral


def pending_deferral(claim: Claim | None, now: datetime) -> Deferral | None:
    """Return the deferred call in the attempt's row, or None once its time has passed."""
    if claim is None or claim.row.deferred_call is None:
        return None
    deferral = Deferral(call=CloudCall(claim.row.deferred_call), until=claim.row.deferred_until)
    return deferral if deferral.is_pending(now) or deferral.is_due(now) else None


def deferral_after(claim: Claim, faults: Collection[Exception], now: datetime) -> Deferral | None:
    """Return the call for which the attempt waits after a step with these ``faults``.

    A fault elsewhere does not cost a call its place. Without any, only a refill is still wanted;
    one that turns out not to be is dropped when it is due.
    """
    new = next((fault.deferral for fault in faults if isinstance(fault, Deferred)), None)
    old = pending_deferral(claim, now)
    if new or old is None:
        return new
    busy = any(isinstance(fault, ConcurrencyLimitReached) for fault in faults)
    still_waits = old.is_pending(now) and (faults or old.call is CloudCall.REFILL)
    return old if still_waits or busy else None


@dataclass
class RateLimitedCloud:
    """The cloud behind rate limits, circuit breakers and a concurrency limit, by region."""

    engine: AsyncEngine
    cloud: CloudProvider
    now: Callable[[], datetime]
    concurrency: int = CONCURRENT_CALLS
    multiple: float = 1.0  # the subscription's limits as a multiple of Microsoft's table

    def region(
        self,
        region: str,
        claim: Claim | None = None,
        before_call: Callable[[], Awaitable[object]] | None = None,
    ) -> "RateLimitedRegion":
        """Return the cloud in this region.

        ``claim``: of the attempt that calls; None: a sweep calls. ``before_call`` is awaited right
        before a call, after its wait for tokens.
        """
        return RateLimitedRegion(
            limited_cloud=self, region=region, claim=claim, before_call=before_call
        )

    async def call(
        self,
        region: str,
        call: CloudCall,
        make: Callable[[], Awaitable[T]],
        claim: Claim | None = None,
        before_call: Callable[[], Awaitable[object]] | None = None,
    ) -> T:
        """Make the call if it may be made now.

        Raises Deferred, ConcurrencyLimitReached, CircuitOpen, and Throttled where a call for no
        attempt finds no token; whatever ``before_call`` and ``make`` raise.
        """
        with ExitStack() as slot:
            with _count_refusal(call, region):
                deferral = pending_deferral(claim, self.now())
                permit = deferral if deferral and deferral.call is call else None
                if permit and permit.is_pending(self.now()):
                    raise self._deferred(region, permit)
                slot.enter_context(self._limit.slot(region))
                admission = await self._circuits.admit(region)
                if permit is None and TOKENS[call] and not admission.is_probe:
                    await self._take_tokens(region, call, claim, deferral)
            if before_call is not None:
                await before_call()
            with remaining.gather_remaining() as remaining_requests:
                try:
                    answer = await _make_measured(call, region, make)
                except CloudError as fault:
                    await self._circuits.record(region, fault, admission)
                    raise self._as_deferred(
                        fault, call, None if admission.is_probe else claim
                    ) from fault
                finally:
                    await self._lower_buckets(region, remaining_requests)
        await self._circuits.record(region, None, admission)
        return answer

    async def return_tokens(self, claim: Claim, retained: Deferral | None) -> None:
        """Give back the tokens of the call that the attempt deferred, unless it is ``retained``."""
        deferral = pending_deferral(claim, self.now())
        if deferral and deferral != retained and deferral.is_pending(self.now()):
            request = self._token_request(offerings.of(claim.row).pool, TOKENS[deferral.call])
            await self._token_batcher.do(replace(request, count=-1))

    async def _take_tokens(
        self, region: str, call: CloudCall, claim: Claim | None, deferral: Deferral | None
    ) -> None:
        """Take the call's tokens. Raises Deferred, or Throttled if the call cannot be deferred.

        An attempt has one deferred call at a time: with ``deferral`` pending, this call takes
        tokens only if the buckets have them now. The look before one that is due does not wait.
        """
        request, now = self._token_request(region, TOKENS[call]), self.now()
        if claim is not None and not (deferral and deferral.is_pending(now)):
            wait = await self._token_batcher.do(request)
            if wait and not (deferral and call is CloudCall.GET):
                raise self._deferred(region, Deferral(call=call, until=now + wait))
            return
        sweep_requests = [] if claim else [self._token_request(region, TOKENS[call], sweeps=True)]
        wait = timedelta(0)
        for token_request in [*sweep_requests, request]:
            async with self.engine.begin() as conn:
                (wait,) = await rate_limit.take(conn, [token_request], now)
                if not wait:
                    return
                await conn.rollback()  # give the tokens back: the call is not made
        if deferral:
            raise self._deferred(region, deferral)
        raise Throttled(_message(region, call), "", wait.total_seconds())

    @cached_property
    def _token_batcher(self) -> Batcher[TokenRequest, timedelta]:
        return Batcher(self._take_batch)

    async def _take_batch(self, requests: Sequence[TokenRequest]) -> list[timedelta]:
        async with self.engine.begin() as conn:
            return await rate_limit.take(conn, requests, self.now())

    def _token_request(
        self, region: str, kinds: Collection[RequestKind], *, sweeps: bool = False
    ) -> TokenRequest:
        """Return a request for a token of each kind; ``sweeps``: from the sweeps' share."""
        buckets = {}
        for kind in kinds:
            shared = kind in SWEPT and region != ALL
            share = (SWEEP_SHARE if sweeps else 1 - SWEEP_SHARE) if shared else 1.0
            name = kind + SWEEPS if sweeps and shared else kind
            buckets[name] = BUCKETS[kind].scaled(share * self.multiple)
        return TokenRequest(region=region, buckets=buckets)

    def _deferred(self, region: str, deferral: Deferral) -> Deferred:
        return Deferred(_message(region, deferral.call), deferral, self.now())

    def _as_deferred(self, fault: CloudError, call: CloudCall, claim: Claim | None) -> CloudError:
        """Return Azure's 429 as Deferred, so that the attempt waits for Azure's Retry-After.

        Azure does not count a call that it refuses: the tokens of this one serve its retry.
        """
        if claim is None or not isinstance(fault, Throttled):
            return fault
        wait = min(timedelta(seconds=fault.retry_after), LONGEST_WAIT)
        deferral = Deferral(call=call, until=self.now() + wait)
        return Deferred(str(fault), deferral, self.now(), fault.code or "Throttled")

    async def _lower_buckets(self, region: str, remaining_requests: dict[str, int]) -> None:
        """Lower all buckets of a kind of which Azure says that few requests remain."""
        for kind in [kind for kind in RequestKind if kind in remaining_requests]:
            AZURE_REMAINING.set(region, kind, value=remaining_requests[kind])
            level = remaining_requests[kind] / (BUCKETS[kind].size * self.multiple)
            if level >= _LOW_SHARE:
                continue
            requests = (
                self._token_request(region, [kind]),
                self._token_request(region, [kind], sweeps=True),
            )
            buckets = {
                name: replace(bucket, size=bucket.size * level)
                for request in requests
                for name, bucket in request.buckets.items()
            }
            async with self.engine.begin() as conn:
                lower = TokenRequest(region=region, buckets=buckets, count=0)
                await rate_limit.take(conn, [lower], self.now())

    @cached_property
    def _limit(self) -> ConcurrencyLimit:
        return ConcurrencyLimit(now=self.now, limit=self.concurrency)

    @cached_property
    def _circuits(self) -> CircuitBreaker:
        return CircuitBreaker(engine=self.engine, now=self.now)


@dataclass(frozen=True, kw_only=True)
class RateLimitedRegion:
    """The cloud's operations in one region: each as in CloudProvider. Raises as `call` does."""

    limited_cloud: RateLimitedCloud
    region: str
    claim: Claim | None = None
    before_call: Callable[[], Awaitable[object]] | None = None

    async def create(self, spec: ScaleSetSpec) -> None:
        await self._call(CloudCall.CREATE, self._cloud.create, spec)

    async def get(self, name: str) -> ScaleSet:
        return await self._call(CloudCall.GET, self._cloud.get, name)

    async def list_owned(self) -> list[ScaleSet]:
        return await self._call(CloudCall.LIST, self._cloud.list_owned)

    async def list_tagged(self) -> list[TaggedResource]:
        call = self._cloud.list_tagged
        return await self.limited_cloud.call(_RESOURCE_GRAPH, CloudCall.LIST_TAGGED, call)

    async def refill(self, name: str, instance_count: int, useless: Collection[str] = ()) -> None:
        await self._call(CloudCall.REFILL, self._cloud.refill, name, instance_count, useless)

    async def delete(self, name: str) -> None:
        await self._call(CloudCall.DELETE, self._cloud.delete, name)

    async def serial_log(self, name: str, instance_id: str) -> bytes:
        return await self._call(CloudCall.SERIAL_LOG, self._cloud.serial_log, name, instance_id)

    async def spot_cores(self, region: str) -> SpotCores:
        call = partial(self._cloud.spot_cores, region)
        return await self.limited_cloud.call(region, CloudCall.SPOT_CORES, call)

    async def close(self) -> None:
        """Do nothing: the caller that made the cloud closes it."""

    async def _call(
        self,
        call: CloudCall,
        make: Callable[P, Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        make_call = partial(make, *args, **kwargs)
        return await self.limited_cloud.call(
            self.region, call, make_call, self.claim, self.before_call
        )

    @property
    def _cloud(self) -> CloudProvider:
        cloud = self.limited_cloud.cloud
        return cloud if self.region == ALL else engines.cloud_of_pool(cloud, self.region)


def _message(region: str, call: CloudCall) -> str:
    return f"The rate limit of {call} in {region} is reached"


@contextmanager
def _count_refusal(call: CloudCall, region: str) -> Iterator[None]:
    """Count a refusal of our own."""
    try:
        yield
    except Throttled as refusal:
        AZURE_DEFERRED.add(call, region, _DEFERRAL_REASONS.get(type(refusal), "rate_limit"))
        raise


async def _make_measured(call: CloudCall, region: str, make: Callable[[], Awaitable[T]]) -> T:
    """Make the call and record how long Azure took, and with which result."""
    start, result = perf_counter(), "unexpected"
    try:
        answer = await make()
    except CloudError as fault:
        result = type(fault).__name__
        raise
    else:
        result = "ok"
        return answer
    finally:
        AZURE_CALL.observe(call, region, result, value=perf_counter() - start)
