"""Tokens and circuits are shared by all replicas; a region that fails holds up no other one."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TypeVar

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from service.cloud.fake import FakeCloud
from service.cloud.provider import CloudError, Throttled
from service.db.attempts import attempts
from service.db.cloud import rate_limit
from service.db.cloud.rate_limit import TokenRequest
from service.db.core.engine import driver_url
from service.db.core.leases import LEASE, Claim
from service.db.core.notify import Listener
from service.db.schema.cloud_tables import cloud_tokens
from service.domain.cloud.circuit_breaker import FAILURES
from service.domain.cloud.fleet import Offering, ScaleSet, ScaleSetSpec, scale_set_name
from service.domain.cloud.rate_limit import BUCKETS, CloudCall, RequestKind
from service.domain.errors import LeaseLost
from service.reconciler.cloud.circuit_breaker import CircuitOpen
from service.reconciler.cloud.concurrency_limit import CONCURRENT_CALLS, ConcurrencyLimitReached
from service.reconciler.cloud.rate_limit import Deferred, RateLimitedCloud
from service.reconciler.loop import Loop
from tests import waiting
from tests.clock import Clock
from tests.integration.db.rows import add_attempt, add_job
from tests.world import SPOT, World

ILL = "southcentralus"
T = TypeVar("T")
SLOTS = 6  # steps at a time
CREATIONS = BUCKETS[RequestKind.CREATE]


@dataclass
class IllRegion(FakeCloud):
    """Whoever asks about these sets waits until it is well again."""

    hanging: frozenset[str] = frozenset()
    well: asyncio.Event = field(default_factory=asyncio.Event)

    async def get(self, name: str) -> ScaleSet:
        if name in self.hanging:
            await self.well.wait()
        return await super().get(name)


def spec(name: str, offering: Offering = SPOT) -> ScaleSetSpec:
    return ScaleSetSpec(name=name, offering=offering, instance_count=2, cloud_init="")


async def failing() -> None:
    raise CloudError("InternalServerError")


async def fine() -> str:
    return "fine"


async def test_a_region_that_hangs_holds_up_no_other_one(
    world: World, engine: AsyncEngine, clock: Clock, database_url: str
) -> None:
    failing_ids = [f"att-ill{n:03}" for n in range(SLOTS + 2)]
    async with engine.begin() as conn:
        for n, attempt_id in enumerate([*failing_ids, "att-well"]):
            await add_job(conn, clock(), id=f"job-{n}")
            await add_attempt(
                conn,
                clock(),
                id=attempt_id,
                job_id=f"job-{n}",
                state="provisioning",
                region=ILL if attempt_id in failing_ids else SPOT.region,
                due_at=clock() + timedelta(milliseconds=n),
            )
    clock.advance(seconds=1)
    cloud = IllRegion(now=clock, hanging=frozenset(map(scale_set_name, failing_ids)))
    limited = RateLimitedCloud(engine=engine, cloud=cloud, now=clock, concurrency=2)
    reconciler = replace(world.attempts, cloud=cloud, limited_cloud=limited)
    loop = Loop(listener=Listener(driver_url(database_url)), stop=asyncio.Event())

    loop_task = asyncio.create_task(loop.run_when_due("attempts", reconciler.claim, SLOTS))
    try:
        created = await waiting.until(
            value(cloud.billed_names), lambda created: scale_set_name("att-well") in created
        )
    finally:
        loop.stop.set()
        cloud.well.set()
        await loop_task

    assert set(created) == {scale_set_name("att-well")}  # while the others still hung


async def test_replicas_together_never_ask_more_often_than_azure_allows(
    engine: AsyncEngine, clock: Clock
) -> None:
    first_cloud, second_cloud = (limited(engine, clock, times=0.1) for _ in "ab")
    granted = 0
    for n in range(2 * int(CREATIONS.size * 0.1)):
        with suppress(Throttled):
            await (first_cloud, second_cloud)[n % 2].call("eastus", CloudCall.CREATE, fine)
            granted += 1
    clock.advance(minutes=1)
    available = 0  # and a half was left
    for _ in range(20):
        with suppress(Throttled):
            await first_cloud.call("eastus", CloudCall.CREATE, fine)
            available += 1

    assert granted == int(CREATIONS.size * 0.1)
    assert available == 13
    assert await first_cloud.call("westus", CloudCall.CREATE, fine) == "fine"


async def test_fifty_calls_at_once_take_exactly_fifty_tokens(
    engine: AsyncEngine, clock: Clock
) -> None:
    cloud = limited(engine, clock)
    claims = await claimed(engine, clock, CONCURRENT_CALLS)

    await asyncio.gather(*(cloud.call(ILL, CloudCall.CREATE, fine, claim) for claim in claims))

    assert await tokens_left(engine) == {"CreateVMScaleSet": CREATIONS.size - CONCURRENT_CALLS}


async def test_calls_without_a_token_are_deferred_by_the_rate(
    engine: AsyncEngine, clock: Clock
) -> None:
    cloud = limited(engine, clock, times=0.02)  # 7.5 creations, then one every 24 s
    delays = []
    for claim in await claimed(engine, clock, 12):
        try:
            await cloud.call("eastus", CloudCall.CREATE, fine, claim)
        except Deferred as refusal:
            delays.append((refusal.deferral.until - clock()).total_seconds())

    assert delays == pytest.approx([12, 36, 60, 84, 108])
    request = TokenRequest(region="westus", buckets={"all": CREATIONS.scaled(0.02)})
    async with engine.begin() as conn:  # at once as well
        waits = await rate_limit.take(conn, [request] * 12, clock())
    assert [wait.total_seconds() for wait in waits] == pytest.approx([0] * 7 + delays)


async def test_a_replica_whose_clock_is_behind_fills_nothing_twice(
    engine: AsyncEngine, clock: Clock
) -> None:
    fast_cloud = limited(engine, Clock(clock() + timedelta(minutes=1)), times=0.02)  # 2.5 a minute
    slow_cloud = limited(engine, clock, times=0.02)
    *claims_before, second_last, last = await claimed(engine, clock, 9)
    for n, claim in enumerate(claims_before):  # nor does it lose any token
        await (fast_cloud, slow_cloud)[n % 2].call("eastus", CloudCall.CREATE, fine, claim)
    for cloud, claim in ((slow_cloud, second_last), (fast_cloud, last)):
        with pytest.raises(Deferred):
            await cloud.call("eastus", CloudCall.CREATE, fine, claim)


async def test_a_bucket_that_a_clock_far_ahead_has_filled_fills_again_from_now_on(
    engine: AsyncEngine, clock: Clock
) -> None:
    skewed = limited(engine, Clock(clock() + timedelta(hours=1)), times=0.02)
    right = limited(engine, clock, times=0.02)
    *claims_before, second_last, last = await claimed(engine, clock, 9)
    for claim in claims_before:
        await skewed.call("eastus", CloudCall.CREATE, fine, claim)
    with pytest.raises(Deferred):
        await right.call("eastus", CloudCall.CREATE, fine, second_last)
    clock.advance(seconds=60)

    assert await right.call("eastus", CloudCall.CREATE, fine, last) == "fine"


async def test_what_azure_says_is_left_lowers_our_count_and_never_raises_it(
    engine: AsyncEngine, clock: Clock
) -> None:
    cloud = limited(engine, clock)
    await cloud.call("eastus", CloudCall.CREATE, fine)
    await cloud._lower_buckets("eastus", {RequestKind.CREATE: 7})
    lowered = await tokens_left(engine)
    await cloud._lower_buckets("eastus", {RequestKind.CREATE: 100})

    assert lowered == await tokens_left(engine) == {"CreateVMScaleSet": pytest.approx(7)}


async def test_what_azure_says_is_left_lowers_the_share_of_sweeps_as_well(
    engine: AsyncEngine, clock: Clock
) -> None:
    cloud = limited(engine, clock)
    await cloud._lower_buckets("eastus", {RequestKind.DELETE: 20})
    granted = 0
    for _ in range(30):
        with suppress(Throttled):
            await cloud.call("eastus", CloudCall.DELETE, fine)
            granted += 1

    assert granted == 20


async def test_while_attempts_are_idle_sweeps_delete_at_the_full_rate(
    engine: AsyncEngine, clock: Clock
) -> None:
    cloud, granted = limited(engine, clock, times=0.1), 0
    size = int(BUCKETS[RequestKind.DELETE].size * 0.1)
    for _ in range(2 * size):
        with suppress(Throttled):
            await cloud.call("eastus", CloudCall.DELETE, fine)
            granted += 1

    assert granted == size


async def test_a_call_for_no_attempt_takes_no_token_in_advance(
    engine: AsyncEngine, clock: Clock
) -> None:
    cloud = limited(engine, clock, times=0.001)
    for _ in range(3):
        with pytest.raises(Throttled) as refusal:
            await cloud.call("eastus", CloudCall.DELETE, fine)
        assert not isinstance(refusal.value, Deferred)

    assert await tokens_left(engine) == {}


async def test_a_sweep_deletes_however_many_attempts_wait_to_delete(
    engine: AsyncEngine, clock: Clock
) -> None:
    cloud = limited(engine, clock, times=0.02)
    deferred = 0
    for claim in await claimed(engine, clock, 40):
        try:
            await cloud.call("eastus", CloudCall.DELETE, fine, claim)
        except Deferred:
            deferred += 1

    assert deferred > 10
    assert await cloud.call("eastus", CloudCall.DELETE, fine) == "fine"


async def test_a_lease_that_is_lost_while_a_create_waits_for_its_tokens_makes_no_machines(
    world: World, engine: AsyncEngine, clock: Clock
) -> None:
    (claim,) = await claimed(engine, clock, 1)
    reconciler = replace(
        world.attempts, limited_cloud=RateLimitedCloud(engine=engine, cloud=world.cloud, now=clock)
    )
    async with engine.begin() as conn:  # holds the bucket
        await conn.execute(
            cloud_tokens.insert().values(
                region=SPOT.region, kind=RequestKind.CREATE, tokens=9, at=clock()
            )
        )
        row = await attempts.find(conn, claim.row_id)
        assert row is not None
        creation = asyncio.create_task(reconciler._create(claim, row))
        limit = reconciler.limited_cloud._limit if reconciler.limited_cloud else None
        assert limit is not None
        await waiting.until(value(lambda: limit.in_progress[SPOT.region]), lambda n: n == 1)
        clock.advance(seconds=LEASE.total_seconds() + 1)
        async with engine.begin() as other_conn:
            assert len(await attempts.claim_due(other_conn, clock(), 1)) == 1

    with pytest.raises(LeaseLost):
        await creation
    assert world.cloud.billed_names() == set()


async def test_a_call_beyond_the_concurrency_limit_or_to_an_open_circuit_takes_no_token(
    engine: AsyncEngine, clock: Clock
) -> None:
    (claim,) = await claimed(engine, clock, 1)
    cloud, gate = limited(engine, clock, concurrency=1), asyncio.Event()
    running_call = asyncio.create_task(cloud.call("eastus", CloudCall.LIST_TAGGED, gate.wait))
    await waiting.until(value(lambda: cloud._limit.in_progress["eastus"]), lambda n: n == 1)
    for requester in (claim, None):
        with pytest.raises(ConcurrencyLimitReached):
            await cloud.call("eastus", CloudCall.DELETE, fine, requester)
    gate.set()
    await running_call
    for _ in range(FAILURES):
        with pytest.raises(CloudError):
            await cloud.call("eastus", CloudCall.LIST_TAGGED, failing)
    for requester in (claim, None):
        with pytest.raises(CircuitOpen):
            await cloud.call("eastus", CloudCall.DELETE, fine, requester)

    assert await tokens_left(engine) == {}


def limited(
    engine: AsyncEngine, now: Clock, *, times: float = 1.0, concurrency: int = CONCURRENT_CALLS
) -> RateLimitedCloud:
    """Return a replica's cloud."""
    cloud = FakeCloud(now=now)
    return RateLimitedCloud(
        engine=engine, cloud=cloud, now=now, multiple=times, concurrency=concurrency
    )


async def claimed(engine: AsyncEngine, clock: Clock, count: int) -> list[Claim]:
    """So many attempts, each claimed."""
    async with engine.begin() as conn:
        for n in range(count):
            await add_job(conn, clock(), id=f"job-{n}")
            await add_attempt(conn, clock(), id=f"att-{n}", job_id=f"job-{n}")
        return [claim for claim, _ in await attempts.claim_due(conn, clock(), count)]


async def tokens_left(engine: AsyncEngine) -> dict[str, float]:
    async with engine.connect() as conn:
        rows = await conn.execute(select(cloud_tokens.c.kind, cloud_tokens.c.tokens))
        return {row.kind: row.tokens for row in rows}


def behind(gate: asyncio.Event) -> Callable[[], Awaitable[bool]]:
    return gate.wait


def value(look: Callable[[], T]) -> Callable[[], Awaitable[T]]:
    async def now() -> T:
        return look()

    return now
