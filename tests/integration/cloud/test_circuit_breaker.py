"""A region that fails is left alone by every replica, and then tried by one."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import event, select
from sqlalchemy.ext.asyncio import AsyncEngine

from service.cloud.provider import CloudError, InsufficientCapacity, Throttled
from service.db.cloud import scale_set_cache
from service.db.schema import tables
from service.domain.cloud.circuit_breaker import FAILURES, PROBE
from service.domain.cloud.rate_limit import CloudCall
from service.domain.states import AttemptState
from service.reconciler.cloud.concurrency_limit import CONCURRENT_CALLS
from service.reconciler.cloud.rate_limit import Deferred, RateLimitedCloud
from tests import waiting
from tests.clock import Clock
from tests.integration.cloud.test_rate_limit import (
    ILL,
    behind,
    claimed,
    failing,
    fine,
    limited,
    tokens_left,
    value,
)
from tests.integration.db.rows import add_attempt, add_job
from tests.nodes.scripted_node import start_training
from tests.world import SPOT, World

LONG = 200.0  # s, that a region is left alone
MOST_LOOKS = 60


async def refuse_call() -> None:
    raise InsufficientCapacity("SkuNotAvailable")


async def test_a_region_that_fails_is_left_alone_by_every_replica_and_then_tried_by_one(
    engine: AsyncEngine, clock: Clock
) -> None:
    first_cloud, second_cloud = (limited(engine, clock) for _ in "ab")
    for _ in range(FAILURES):
        with pytest.raises(CloudError):
            await first_cloud.call(ILL, CloudCall.GET, failing)

    with pytest.raises(Throttled, match="fails in"):
        await second_cloud.call(ILL, CloudCall.GET, fine)
    assert await second_cloud.call(SPOT.region, CloudCall.GET, fine) == "fine"
    clock.advance(seconds=60)
    gate = asyncio.Event()
    trying = asyncio.create_task(first_cloud.call(ILL, CloudCall.GET, behind(gate)))
    await waiting.until(value(lambda: first_cloud._limit.in_progress[ILL]), lambda n: n == 1)
    with pytest.raises(Throttled):
        await second_cloud.call(ILL, CloudCall.GET, fine)
    gate.set()
    await trying
    clock.advance(seconds=PROBE.total_seconds())

    assert await second_cloud.call(ILL, CloudCall.GET, fine) == "fine"


async def test_calls_that_were_under_way_do_not_lengthen_the_pause(
    engine: AsyncEngine, clock: Clock
) -> None:
    cloud, together = limited(engine, clock), asyncio.Barrier(FAILURES + 5)

    async def fail_together() -> None:
        await together.wait()
        await failing()

    calls = [cloud.call(ILL, CloudCall.GET, fail_together) for _ in range(together.parties)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    clock.advance(seconds=8)  # 7.5 s are the longest first pause

    assert {type(outcome) for outcome in outcomes} == {CloudError}
    assert await cloud.call(ILL, CloudCall.GET, fine) == "fine"


async def test_many_answers_at_once_after_a_failure_are_all_answers(
    engine: AsyncEngine, clock: Clock
) -> None:
    cloud = limited(engine, clock)
    with pytest.raises(CloudError):
        await cloud.call(ILL, CloudCall.GET, failing)

    outcomes = await asyncio.gather(
        *(cloud.call(ILL, CloudCall.GET, fine) for _ in range(CONCURRENT_CALLS))
    )

    assert outcomes == ["fine"] * CONCURRENT_CALLS


async def test_a_clear_refusal_is_no_sign_of_an_ill_region(
    engine: AsyncEngine, clock: Clock
) -> None:
    cloud = limited(engine, clock)
    for _ in range(2 * FAILURES):
        with pytest.raises(InsufficientCapacity):
            await cloud.call(ILL, CloudCall.CREATE, refuse_call)

    assert await cloud.call(ILL, CloudCall.CREATE, fine) == "fine"


async def test_an_answer_is_kept_though_the_database_goes_meanwhile(
    engine: AsyncEngine, clock: Clock
) -> None:
    replica = limited(engine, clock)

    async def make() -> str:
        event.listen(engine.sync_engine, "before_cursor_execute", _refuse_statement)
        return "fine"

    try:
        assert await replica.call(SPOT.region, CloudCall.GET, make) == "fine"
    finally:
        event.remove(engine.sync_engine, "before_cursor_execute", _refuse_statement)


async def test_what_an_ill_region_refuses_the_sweep_is_not_asked_again(
    world: World, engine: AsyncEngine, clock: Clock
) -> None:
    limited = RateLimitedCloud(engine=engine, cloud=world.cloud, now=clock)
    for _ in range(FAILURES):
        with pytest.raises(CloudError):
            await limited.call(scale_set_cache.ALL, CloudCall.LIST, failing)
    sweep, before = replace(world.orphans, limited_cloud=limited), world.cloud.calls

    assert await sweep.run_once() == []
    assert world.cloud.calls == before


async def test_the_probe_of_a_region_waits_for_no_token(engine: AsyncEngine, clock: Clock) -> None:
    claims = await claimed(engine, clock, 30)
    cloud = limited(engine, clock, times=0.02)
    for claim in claims:
        with suppress(Deferred):
            await cloud.call(ILL, CloudCall.CREATE, fine, claim)
    for _ in range(FAILURES):
        with pytest.raises(CloudError):
            await cloud.call(ILL, CloudCall.LIST_TAGGED, failing)
    clock.advance(seconds=10)

    assert await cloud.call(ILL, CloudCall.CREATE, fine, claims[0]) == "fine"


async def test_while_a_circuit_is_open_no_tokens_are_kept_for_its_end(
    world: World, engine: AsyncEngine, clock: Clock
) -> None:
    cloud = limited(engine, clock)
    await _fail_until_left_alone(cloud, clock)
    async with engine.begin() as conn:
        await add_job(conn, clock(), state="running")
        values = {"deferred_call": "create", "deferred_until": clock()}
        await add_attempt(conn, clock(), state="provisioning", **values)
    await replace(world.attempts, limited_cloud=cloud).run_once()
    row = await _row(engine)

    assert (row.deferred_call, row.deferred_until) == (None, None)
    assert world.cloud.calls == 0
    assert await tokens_left(engine) == {}


async def test_nodes_are_seen_to_as_often_as_ever_while_their_region_is_left_alone(
    world: World, engine: AsyncEngine, clock: Clock
) -> None:
    await start_training(world)
    cloud = RateLimitedCloud(engine=engine, cloud=world.cloud, now=clock)
    reconciler = replace(world.attempts, limited_cloud=cloud)
    await _fail_until_left_alone(cloud, clock)
    intervals = list[int]()
    while (await _row(engine)).state == AttemptState.RUNNING and len(intervals) < MOST_LOOKS:
        clock.advance(seconds=world.pace.poll.total_seconds())
        intervals.append(await reconciler.run_once())

    assert set(intervals) == {1}
    silence_s = len(intervals) * world.pace.poll
    assert world.pace.silence <= silence_s <= world.pace.silence + 3 * world.pace.poll


def _refuse_statement(*_: object) -> None:
    raise OSError("the database is gone")


async def _fail_until_left_alone(limited: RateLimitedCloud, clock: Clock) -> None:
    async def failing() -> None:
        raise CloudError("InternalServerError")

    while True:  # the longer the more it failed; here until it is so for five minutes
        try:
            await limited.call(SPOT.region, CloudCall.LIST_TAGGED, failing)
        except Throttled as refusal:
            if refusal.retry_after > LONG:
                return
            clock.advance(seconds=refusal.retry_after)
        except CloudError:
            continue


async def _row(engine: AsyncEngine) -> Any:  # noqa: ANN401 - a row
    async with engine.connect() as conn:
        return (await conn.execute(select(tables.attempts))).one()
