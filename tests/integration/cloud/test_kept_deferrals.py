"""A deferred call keeps its place for as long as it is wanted, and then gives its tokens back."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncEngine

from service.cloud.provider import CloudError
from service.db.core import leases
from service.db.schema import tables
from service.domain.cloud.circuit_breaker import FAILURES
from service.domain.cloud.fleet import scale_set_name
from service.domain.cloud.rate_limit import CloudCall, RequestKind
from service.domain.states import AttemptState
from service.reconciler.attempts.attempts import AttemptReconciler
from tests.clock import Clock
from tests.integration.attempts.test_elastic_jobs import ELASTIC, shrink, start_elastic_job
from tests.integration.cloud.test_deferred_calls import (
    NAME,
    Watched,
    add_waiting,
    attempt_row,
    cloud,
    limits_of,
    reconciler,
    replica_of,
    row_of,
    set_tokens,
    tokens_of,
)
from tests.integration.cloud.test_rate_limit import failing
from tests.nodes.scripted_node import boot, train
from tests.world import SPOT, World
from trainer.contract import DirectiveKind, NodePhase

__all__ = ["cloud", "reconciler"]
LATER = timedelta(minutes=20)


async def test_a_deferred_refill_does_not_forget_the_machine_that_hangs(
    world: World, engine: AsyncEngine, clock: Clock, cloud: Watched, reconciler: AttemptReconciler
) -> None:
    _, nodes, number = await start_elastic_job(world)
    world.attempts = reconciler
    number = await shrink(world, nodes, number)
    name = scale_set_name(nodes[0].attempt_id)
    unlisted, present, deferrals = set[str](), set[str](), 0
    for _ in range(95):  # three quarters of an hour
        for node in nodes[:2]:
            await node.say(NodePhase.RUNNING, number, step=4)
        await world.tick(seconds=28)
        present = {i.vm_id for i in (await cloud.get(name)).instances}
        if unlisted and not unlisted & present:
            break
        unlisted = unlisted or present - {n.vm_id for n in nodes}
        if unlisted:  # others take all that comes back
            await set_tokens(engine, clock, RequestKind.UPDATE, -1000)
        if (await row_of(engine)).deferred_call == "refill":
            await set_tokens(engine, clock, RequestKind.LIST, -1000)
            deferrals += 1

    assert deferrals >= 3
    assert unlisted
    assert not unlisted & present


async def test_machines_that_go_while_a_refill_is_deferred_are_missed_without_a_list(
    world: World, engine: AsyncEngine, clock: Clock, cloud: Watched, reconciler: AttemptReconciler
) -> None:
    least = {"nodes": 3, "elastic": {"min_nodes": 1}}
    _, nodes, number = await start_elastic_job(world, **ELASTIC | {"infrastructure": least})
    world.attempts = reconciler
    await set_tokens(engine, clock, RequestKind.UPDATE, -10000)  # 20 minutes
    number = await shrink(world, nodes, number)
    await world.tick(seconds=10)
    row_before, name = await row_of(engine), scale_set_name(nodes[0].attempt_id)
    await set_tokens(engine, clock, RequestKind.UPDATE, -20000)  # others wait behind it
    ids = {i.vm_id: i.instance_id for i in (await cloud.get(name)).instances}
    cloud.evict(name, ids[nodes[1].vm_id])
    await world.tick(2, seconds=10)
    row = await row_of(engine)

    assert row_before.deferred_call == "refill"
    assert (await nodes[0].hear()).kind is DirectiveKind.STOP
    assert (row.deferred_call, row.deferred_until) == ("refill", row_before.deferred_until)


async def test_a_creation_that_is_deferred_beyond_the_provisioning_timeout_is_made(
    engine: AsyncEngine, clock: Clock, cloud: Watched, reconciler: AttemptReconciler
) -> None:
    await add_waiting(engine, clock, AttemptState.PROVISIONING)
    await set_tokens(engine, clock, RequestKind.CREATE, -125 * 50)
    await reconciler.run_once()
    delay = (await row_of(engine)).due_at - clock()
    clock.advance(seconds=delay.total_seconds())
    states = list[str]()
    while "starting" not in states and len(states) < 30:
        await reconciler.run_once()
        states.append((await row_of(engine)).state)
        clock.advance(seconds=10)

    assert delay > timedelta(minutes=50)
    assert set(states) == {"provisioning", "starting"}


async def test_a_deferred_creation_that_is_cancelled_gives_its_tokens_back(
    engine: AsyncEngine, clock: Clock, reconciler: AttemptReconciler
) -> None:
    await add_waiting(engine, clock, AttemptState.PROVISIONING)
    await set_tokens(engine, clock, RequestKind.CREATE, -100)
    await reconciler.run_once()
    tokens = (await tokens_of(engine))[RequestKind.CREATE]
    async with engine.begin() as conn:
        await conn.execute(update(tables.jobs).values(cancel_requested_at=clock()))
        await leases.enqueue(conn, tables.attempts, "att-1", clock())
    await reconciler.run_once()

    assert (await row_of(engine)).state == AttemptState.TERMINATING
    assert (tokens, (await tokens_of(engine))[RequestKind.CREATE]) == (-101, -100)


async def test_a_due_call_beyond_the_concurrency_limit_keeps_its_tokens(
    engine: AsyncEngine, clock: Clock, cloud: Watched, reconciler: AttemptReconciler
) -> None:
    limited = replace(limits_of(reconciler), concurrency=1)
    reconciler = replace(reconciler, limited_cloud=limited)
    await _add_deferred_creation(engine, clock, after=timedelta(0))
    with limited._limit.slot(SPOT.region):
        await reconciler.run_once()
    row = await row_of(engine)
    await set_tokens(engine, clock, RequestKind.CREATE, -1000)
    clock.advance(seconds=5)
    await reconciler.run_once()

    assert (row.deferred_call, cloud.asked) == ("create", ["create"])


async def test_an_open_circuit_keeps_the_place_of_a_call_that_is_not_due(
    engine: AsyncEngine, clock: Clock, reconciler: AttemptReconciler
) -> None:
    limited = limits_of(reconciler)
    for _ in range(FAILURES):
        with pytest.raises(CloudError):
            await limited.call(SPOT.region, CloudCall.LIST_TAGGED, failing)
    await _add_deferred_creation(engine, clock, after=LATER)
    await reconciler.run_once()
    row = await row_of(engine)

    assert (row.deferred_call, row.deferred_until) == ("create", clock() + LATER)


async def test_a_deferred_creation_of_an_attempt_that_ends_does_not_prove_its_machines_gone(
    world: World, engine: AsyncEngine, clock: Clock, cloud: Watched, reconciler: AttemptReconciler
) -> None:
    values = {"deferred_call": "create", "deferred_until": clock() + timedelta(minutes=5)}
    await add_waiting(engine, clock, AttemptState.TERMINATING, **values)
    await cloud.create(world.attempts.specs.spec(await attempt_row(engine)))
    clock.advance(minutes=5)
    await reconciler.run_once()

    assert (await row_of(engine)).state == AttemptState.TERMINATING
    assert cloud.asked == ["create", "get", "delete"]
    assert NAME in cloud.billed_names()


async def _add_deferred_creation(engine: AsyncEngine, clock: Clock, *, after: timedelta) -> None:
    values = {"deferred_call": "create", "deferred_until": clock() + after}
    await add_waiting(engine, clock, AttemptState.PROVISIONING, **values)


async def test_a_halt_gives_the_tokens_of_a_look_back_that_a_list_replaces(
    world: World, engine: AsyncEngine, clock: Clock, cloud: Watched
) -> None:
    replica = replica_of(world, cloud, lists=True)
    assert replica.lister is not None
    job = await world.submit()
    await train(world, await boot(world, job["id"]), step=1)
    await set_tokens(engine, clock, RequestKind.LIST, -100)
    async with engine.begin() as conn:
        await conn.execute(update(tables.attempts).values(due_at=clock()))
    await replica.run_once()
    row_before, tokens = await row_of(engine), await tokens_of(engine)
    await replica.lister.run_once()
    await world.call("POST", f"/v1/fine_tuning/jobs/{job['id']}/cancel")
    await replica.run_once()
    row = await row_of(engine)

    assert (row_before.deferred_call, row.deferred_call) == ("get", None)
    assert row.state == AttemptState.RUNNING  # it stops
    assert (await tokens_of(engine))[RequestKind.LIST] == tokens[RequestKind.LIST] + 1
