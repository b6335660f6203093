"""One list for all, tokens and circuits for all replicas; an ill region holds up no other one."""

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeVar

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.cloud.fake import FakeCloud
from service.cloud.provider import CloudError, InsufficientCapacity, Throttled
from service.db.attempts import attempts
from service.db.cloud import politeness, scale_set_cache
from service.db.core.engine import driver_url
from service.db.core.leases import LEASE, Claim
from service.db.core.notify import Listener
from service.db.schema import tables
from service.db.schema.cloud_tables import cloud_tokens
from service.domain.cloud.fleet import Offering, ScaleSet, ScaleSetSpec, scale_set_name
from service.domain.cloud.politeness import FAILURES, LIMITS, PROBE, Kind
from service.domain.errors import LeaseLost
from service.reconciler.lister import Lister
from service.reconciler.loop import Loop
from service.reconciler.polite import AT_ONCE, NoPlace, PoliteCloud
from tests import waiting
from tests.clock import Clock
from tests.integration.rows import add_attempt, add_job
from tests.world import SPOT, World

ILL = "southcentralus"
EVERY = timedelta(seconds=10)
T = TypeVar("T")
SLOTS = 6  # steps at a time
CROWD, CALL = 400, 3.0  # who want a place, and for how many seconds


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


async def refused() -> None:
    raise InsufficientCapacity("SkuNotAvailable")


async def test_a_region_that_hangs_holds_up_no_other_one(
    world: World, engine: AsyncEngine, clock: Clock, database_url: str
) -> None:
    ill = [f"att-ill{n:03}" for n in range(SLOTS + 2)]
    async with engine.begin() as conn:
        for n, attempt_id in enumerate([*ill, "att-well"]):
            await add_job(conn, clock(), id=f"job-{n}")
            await add_attempt(
                conn,
                clock(),
                id=attempt_id,
                job_id=f"job-{n}",
                state="provisioning",
                region=ILL if attempt_id in ill else SPOT.region,
                due_at=clock() + timedelta(milliseconds=n),
            )
    clock.advance(seconds=1)
    cloud = IllRegion(now=clock, hanging=frozenset(map(scale_set_name, ill)))
    polite = PoliteCloud(engine=engine, cloud=cloud, now=clock, at_once=2)
    reconciler = replace(world.attempts, cloud=cloud, polite=polite)
    loop = Loop(listener=Listener(driver_url(database_url)), stop=asyncio.Event())

    turning = asyncio.create_task(loop.whenever_due("attempts", reconciler.claim, SLOTS))
    try:
        made = await waiting.until(
            _value(cloud.costing), lambda made: scale_set_name("att-well") in made
        )
    finally:
        loop.stop.set()
        cloud.well.set()
        await turning

    assert set(made) == {scale_set_name("att-well")}  # while the others still hung


async def test_replicas_together_never_ask_more_often_than_azure_allows(
    engine: AsyncEngine, clock: Clock
) -> None:
    cloud, small = FakeCloud(now=clock), 0.1
    replicas = [PoliteCloud(engine=engine, cloud=cloud, now=clock, times=small) for _ in range(2)]
    size, granted = int(LIMITS[Kind.CREATE].size * small), 0
    for n in range(2 * size):
        with suppress(Throttled):
            await replicas[n % 2].ask("eastus", [Kind.CREATE], fine)
            granted += 1

    assert granted == size
    assert await replicas[0].ask("westus", [Kind.CREATE], fine) == "fine"


async def test_those_who_wait_for_tokens_come_back_one_after_the_other(
    engine: AsyncEngine, clock: Clock
) -> None:
    polite = PoliteCloud(engine=engine, cloud=FakeCloud(now=clock), now=clock, times=0.01)
    waits = []
    for _ in range(15):
        try:
            await polite.ask("eastus", [Kind.CREATE], fine)
        except Throttled as refusal:
            waits.append(refusal.retry_after)

    assert len(waits) > 5
    assert waits[-1] > waits[0] + 60


async def test_those_who_find_no_place_come_back_one_after_the_other_and_soon(
    engine: AsyncEngine, clock: Clock
) -> None:
    polite = PoliteCloud(engine=engine, cloud=FakeCloud(now=clock), now=clock, at_once=2)
    gate, waits = asyncio.Event(), []
    calls = [asyncio.create_task(polite.ask("eastus", [], _behind(gate))) for _ in "ab"]
    await waiting.until(_value(lambda: polite._under_way["eastus"]), lambda n: n == len(calls))
    for _ in range(100):
        with pytest.raises(NoPlace) as refusal:
            await polite.ask("eastus", [], fine)
        waits.append(refusal.value.retry_after)
    gate.set()
    await asyncio.gather(*calls)

    assert waits[20] > waits[0] + 8  # a place every half second, as two calls of a second give
    assert max(waits) <= 31


async def test_whose_turn_comes_while_it_asks_is_told_so(
    world: World, engine: AsyncEngine, clock: Clock
) -> None:
    claim = await _claimed(world)

    def now() -> datetime:
        clock.advance(seconds=0.002)  # from one look at it to the next
        return clock()

    polite = PoliteCloud(engine=engine, cloud=FakeCloud(now=clock), now=now, at_once=2)
    first = polite._no_place("eastus", claim).retry_after
    turn = polite._turns[claim.row_id].until
    clock.advance(seconds=(turn - clock()).total_seconds() - 0.003)

    assert polite._no_place("eastus", claim).retry_after == pytest.approx(0.001)
    assert first > 1


async def test_a_lease_that_is_lost_while_a_create_waits_for_its_tokens_makes_no_machines(
    world: World, engine: AsyncEngine, clock: Clock
) -> None:
    claim = await _claimed(world)
    polite = PoliteCloud(engine=engine, cloud=world.cloud, now=clock)
    async with polite._taking["eastus", Kind.CREATE]:
        asked = asyncio.create_task(polite.at("eastus", claim).create(spec("rk-late")))
        await waiting.until(_value(lambda: polite._under_way["eastus"]), lambda n: n == 1)
        clock.advance(seconds=LEASE.total_seconds() + 1)
        async with engine.begin() as conn:
            assert len(await attempts.claim_due(conn, clock(), 1)) == 1

    with pytest.raises(LeaseLost):
        await asked
    assert world.cloud.costing() == set()


async def test_a_crowd_that_comes_back_when_told_soon_has_had_all_its_places(
    engine: AsyncEngine, clock: Clock
) -> None:
    polite = PoliteCloud(engine=engine, cloud=FakeCloud(now=clock), now=clock, at_once=5)
    polite._takes["eastus"] = CALL
    comes, busy, served, began = [0.0] * CROWD, list[float](), 0, clock()
    while comes:
        at = heapq.heappop(comes)
        clock.advance(seconds=max(at - (clock() - began).total_seconds(), 0))
        busy = [end for end in busy if end > at]
        if len(busy) < polite.at_once:
            busy.append(at + CALL)
            served += 1
        else:
            heapq.heappush(comes, at + (polite._no_place("eastus").retry_after or 0))
    took = (clock() - began).total_seconds()

    assert served == CROWD
    assert took < 1.5 * CROWD / polite.at_once * CALL


async def test_a_region_that_fails_is_left_alone_by_every_replica_and_then_tried_by_one(
    engine: AsyncEngine, clock: Clock
) -> None:
    one, other = (PoliteCloud(engine=engine, cloud=FakeCloud(now=clock), now=clock) for _ in "ab")
    for _ in range(FAILURES):
        with pytest.raises(CloudError):
            await one.ask(ILL, [Kind.GET], failing)

    with pytest.raises(Throttled, match="fails in"):
        await other.ask(ILL, [Kind.GET], fine)
    assert await other.ask(SPOT.region, [Kind.GET], fine) == "fine"
    clock.advance(seconds=60)
    gate = asyncio.Event()
    trying = asyncio.create_task(one.ask(ILL, [Kind.GET], _behind(gate)))
    await waiting.until(_value(lambda: one._under_way[ILL]), lambda n: n == 1)
    with pytest.raises(Throttled):
        await other.ask(ILL, [Kind.GET], fine)
    gate.set()
    await trying
    clock.advance(seconds=PROBE.total_seconds())

    assert await other.ask(ILL, [Kind.GET], fine) == "fine"


async def test_a_region_that_goes_on_failing_is_left_alone_for_longer_each_time(
    engine: AsyncEngine, clock: Clock
) -> None:
    polite = PoliteCloud(engine=engine, cloud=FakeCloud(now=clock), now=clock)
    for _ in range(FAILURES):
        with pytest.raises(CloudError):
            await polite.ask(ILL, [Kind.GET], failing)
    shut = []
    for _ in range(3):
        clock.advance(seconds=PROBE.total_seconds())
        with pytest.raises(CloudError, match="InternalServerError"):
            await polite.ask(ILL, [Kind.GET], failing)
        async with engine.connect() as conn:
            shut.append(await politeness.circuit(conn, ILL))

    assert [circuit.failures - FAILURES for circuit in shut] == [1, 2, 3]


async def test_many_answers_at_once_after_a_failure_are_all_answers(
    engine: AsyncEngine, clock: Clock
) -> None:
    polite = PoliteCloud(engine=engine, cloud=FakeCloud(now=clock), now=clock)
    with pytest.raises(CloudError):
        await polite.ask(ILL, [Kind.GET], failing)

    answers = await asyncio.gather(*(polite.ask(ILL, [Kind.GET], fine) for _ in range(AT_ONCE)))

    assert answers == ["fine"] * AT_ONCE


async def test_a_crowd_takes_no_more_tokens_than_it_needs(
    engine: AsyncEngine, clock: Clock
) -> None:
    polite = PoliteCloud(engine=engine, cloud=FakeCloud(now=clock), now=clock)
    await asyncio.gather(*(polite.ask(ILL, [Kind.CREATE], fine) for _ in range(AT_ONCE)))
    async with engine.connect() as conn:
        left = (await conn.execute(select(cloud_tokens.c.tokens))).scalar_one()

    assert LIMITS[Kind.CREATE].size - left == AT_ONCE


async def test_a_clear_refusal_is_no_sign_of_an_ill_region(
    engine: AsyncEngine, clock: Clock
) -> None:
    polite = PoliteCloud(engine=engine, cloud=FakeCloud(now=clock), now=clock)
    for _ in range(2 * FAILURES):
        with pytest.raises(InsufficientCapacity):
            await polite.ask(ILL, [Kind.CREATE], refused)

    assert await polite.ask(ILL, [Kind.CREATE], fine) == "fine"


async def test_of_all_replicas_one_lists_and_all_know(engine: AsyncEngine, clock: Clock) -> None:
    cloud = FakeCloud(now=clock)
    await cloud.create(spec("rk-1"))
    clock.advance(seconds=600)
    replicas = [Lister(engine=engine, cloud=cloud, every=EVERY, now=clock) for _ in "abc"]
    before = cloud.calls

    for replica in replicas:
        await replica.run_once()

    assert cloud.calls - before == 1
    assert {name for r in replicas if r.listing for name in r.listing.sets} == {"rk-1"}
    assert all(r.fresh() for r in replicas)
    clock.advance(seconds=31)
    assert not any(r.fresh() for r in replicas)


async def test_a_machine_that_goes_is_noticed_by_the_next_list(
    engine: AsyncEngine, clock: Clock
) -> None:
    cloud = FakeCloud(now=clock)
    lister = Lister(engine=engine, cloud=cloud, every=EVERY, now=clock)
    async with engine.begin() as conn:
        await add_job(conn, clock())
        later = clock() + timedelta(days=1)
        await add_attempt(conn, clock(), due_at=later)
    await cloud.create(spec("rk-1"))
    clock.advance(seconds=600)
    machines = [i.vm_id for i in (await cloud.get("rk-1")).instances]
    async with engine.begin() as conn:
        await conn.execute(tables.attempts.update().values(vm_ids=machines, seen_at=clock()))
    await lister.run_once()
    quiet = await _due(engine, clock)
    cloud.evict("rk-1")
    clock.advance(seconds=EVERY.total_seconds())

    await lister.run_once()

    assert quiet == []
    assert await _due(engine, clock) == ["att-1"]


async def test_a_list_that_comes_late_replaces_no_newer_one(
    engine: AsyncEngine, clock: Clock
) -> None:
    async with engine.begin() as conn:
        await scale_set_cache.claim(conn, clock(), EVERY)
        await scale_set_cache.publish(conn, clock(), [], clock() + EVERY)
        before = clock() - EVERY
        old = replace(await _described(clock), name="rk-old")
        await scale_set_cache.publish(conn, before, [old], clock() + EVERY)
        found = await scale_set_cache.latest(conn, None)

    assert found is not None
    assert found.sets == {}


async def test_what_an_ill_region_refuses_the_sweep_is_not_asked_again(
    world: World, engine: AsyncEngine, clock: Clock
) -> None:
    polite = PoliteCloud(engine=engine, cloud=world.cloud, now=clock)
    for _ in range(FAILURES):
        with pytest.raises(CloudError):
            await polite.ask(scale_set_cache.ALL, [Kind.LIST], failing)
    sweep, before = replace(world.orphans, polite=polite), world.cloud.calls

    assert await sweep.run_once() == []
    assert world.cloud.calls == before


async def _claimed(world: World) -> Claim:
    async with world.engine.begin() as conn:
        await add_job(conn, world.clock())
        await add_attempt(conn, world.clock())
        ((claim, _),) = await attempts.claim_due(conn, world.clock(), 1)
    return claim


async def _described(clock: Clock) -> ScaleSet:
    cloud = FakeCloud(now=clock)
    await cloud.create(spec("rk-1"))
    clock.advance(seconds=600)
    return await cloud.get("rk-1")


async def _due(engine: AsyncEngine, clock: Clock) -> list[str]:
    async def look(conn: AsyncConnection) -> list[str]:
        return [row.id for _, row in await attempts.claim_due(conn, clock(), 10)]

    async with engine.connect() as conn:
        return await look(conn)  # not committed: the lease is given back


def _behind(gate: asyncio.Event) -> Callable[[], Awaitable[bool]]:
    return gate.wait


def _value(look: Callable[[], T]) -> Callable[[], Awaitable[T]]:
    async def now() -> T:
        return look()

    return now
