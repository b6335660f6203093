"""A call that waits for its tokens: its attempt remembers it, and any replica makes it when due."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncEngine

from service.cloud.fake import FakeCloud
from service.cloud.provider import ScaleSetNotFound, Throttled
from service.db.attempts import attempts
from service.db.core import leases
from service.db.core.leases import Claim
from service.db.schema import tables
from service.db.schema.cloud_tables import cloud_tokens
from service.domain.cloud.fleet import ScaleSet, ScaleSetSpec, scale_set_name
from service.domain.cloud.rate_limit import PERMIT_LIFE, CloudCall, Deferral, RequestKind
from service.domain.states import AttemptState
from service.reconciler.attempts.attempts import AttemptReconciler
from service.reconciler.cloud.lister import Lister
from service.reconciler.cloud.rate_limit import Deferred, RateLimitedCloud
from tests.clock import Clock
from tests.integration.attempts.test_elastic_jobs import shrink, start_elastic_job
from tests.integration.cloud.test_rate_limit import fine
from tests.integration.db.rows import add_attempt, add_job
from tests.nodes.scripted_node import ScriptedNode, boot, train
from tests.world import SPOT, World
from trainer.contract import NodePhase

NAME = scale_set_name("att-1")
_a, _t = tables.attempts.c, cloud_tokens.c


@dataclass
class Watched(FakeCloud):
    """Remembers what was asked of it; Azure may refuse to add machines."""

    asked: list[str] = field(default_factory=list)
    throttles_refills: bool = False

    async def refill(self, name: str, instance_count: int, useless: Collection[str] = ()) -> None:
        self.asked.append("refill")
        if self.throttles_refills:
            raise Throttled("TooManyRequests", retry_after=1000)
        await super().refill(name, instance_count, useless)

    async def get(self, name: str) -> ScaleSet:
        self.asked.append("get")
        return await super().get(name)

    async def create(self, spec: ScaleSetSpec) -> None:
        self.asked.append("create")
        await super().create(spec)

    async def delete(self, name: str) -> None:
        self.asked.append("delete")
        await super().delete(name)


@pytest.fixture
def cloud(world: World, clock: Clock) -> Watched:
    """Return the attempts reconciler of the world behind rate limits."""
    world.cloud = Watched(now=clock)
    world.attempts = replace(world.attempts, cloud=world.cloud)
    return world.cloud


@pytest.fixture
def reconciler(world: World, cloud: Watched) -> AttemptReconciler:
    """Return a replica that keeps to the rate limits."""
    return replica_of(world, cloud)


def replica_of(world: World, cloud: FakeCloud, *, lists: bool = False) -> AttemptReconciler:
    limited = RateLimitedCloud(engine=world.engine, cloud=cloud, now=world.clock)
    every = world.pace.poll
    lister = Lister(engine=world.engine, cloud=cloud, interval=every, now=world.clock)
    return replace(
        world.attempts, cloud=cloud, limited_cloud=limited, lister=lister if lists else None
    )


def limits_of(reconciler: AttemptReconciler) -> RateLimitedCloud:
    assert reconciler.limited_cloud
    return reconciler.limited_cloud


async def test_a_creation_without_a_token_is_made_by_any_replica_when_it_is_due(
    world: World, engine: AsyncEngine, clock: Clock, cloud: Watched, reconciler: AttemptReconciler
) -> None:
    await add_waiting(engine, clock, AttemptState.PROVISIONING)
    await set_tokens(engine, clock, RequestKind.CREATE, -124)  # the 125th without a token: a minute
    await reconciler.run_once()
    row = await row_of(engine)
    deferral = (row.deferred_call, row.due_at - clock(), row.deferred_until - clock())
    replica = replica_of(world, cloud)
    clock.advance(seconds=59)
    early_count = await replica.run_once()
    clock.advance(seconds=1)
    tokens = await tokens_of(engine)
    await replica.run_once()
    after = await row_of(engine)

    assert deferral == ("create", timedelta(minutes=1), timedelta(minutes=1))
    assert (early_count, cloud.asked) == (0, ["get", "create"])
    assert NAME in cloud.billed_names()
    assert (await tokens_of(engine))[RequestKind.CREATE] == tokens[RequestKind.CREATE]
    assert (after.deferred_call, after.deferred_until) == (None, None)


async def test_news_keep_the_place_of_a_deferred_call_and_takes_no_token(
    engine: AsyncEngine, clock: Clock, cloud: Watched, reconciler: AttemptReconciler
) -> None:
    await add_waiting(engine, clock, AttemptState.PROVISIONING)
    await set_tokens(engine, clock, RequestKind.LIST, -100)
    rows, tokens = [], []
    for _ in range(3):
        assert await reconciler.run_once() == 1
        row = await row_of(engine)
        rows.append((row.due_at, row.deferred_call, row.deferred_until))
        tokens.append((await tokens_of(engine))[RequestKind.LIST])
        clock.advance(seconds=1)
        async with engine.begin() as conn:
            await leases.enqueue(conn, tables.attempts, "att-1", clock())

    assert rows == [rows[0]] * 3
    assert tokens == [-101] * 3
    assert cloud.asked == []


async def test_a_deferred_delete_is_made_without_another_look(
    world: World, engine: AsyncEngine, clock: Clock, cloud: Watched, reconciler: AttemptReconciler
) -> None:
    await add_waiting(engine, clock, AttemptState.TERMINATING)
    await cloud.create(world.attempts.specs.spec(await attempt_row(engine)))
    clock.advance(minutes=5)
    await set_tokens(engine, clock, RequestKind.DELETE, -10)
    await reconciler.run_once()
    async with engine.begin() as conn:
        await leases.enqueue(conn, tables.attempts, "att-1", clock())
    await reconciler.run_once()
    clock.advance(seconds=10)
    await reconciler.run_once()

    assert cloud.asked == ["create", "get", "delete"]


async def test_a_look_that_is_deferred_while_a_request_comes_does_not_hold_it_up(
    engine: AsyncEngine, clock: Clock, reconciler: AttemptReconciler
) -> None:
    await add_waiting(engine, clock, AttemptState.PROVISIONING)
    await set_tokens(engine, clock, RequestKind.LIST, -100)
    await reconciler.run_once()
    async with engine.begin() as conn:
        await conn.execute(update(tables.jobs).values(cancel_requested_at=clock()))
        await leases.enqueue(conn, tables.attempts, "att-1", clock())
    await reconciler.run_once()
    row = await row_of(engine)

    assert (row.state, row.deferred_call) == (AttemptState.TERMINATING, None)


async def test_an_attempt_waits_for_one_call_at_a_time(
    engine: AsyncEngine, clock: Clock, reconciler: AttemptReconciler
) -> None:
    limited = limits_of(reconciler)
    deferred_until = clock() + timedelta(seconds=90)
    deferral = Deferral(call=CloudCall.CREATE, until=deferred_until)
    claim = await _claimed(
        engine, clock, deferred_call=deferral.call, deferred_until=deferred_until
    )
    with pytest.raises(ScaleSetNotFound):  # there are tokens
        await limited.region(SPOT.region, claim).get("rk-1")
    await set_tokens(engine, clock, RequestKind.LIST, 0)
    with pytest.raises(Deferred) as refusal:
        await limited.region(SPOT.region, claim).get("rk-1")

    assert refusal.value.deferral == deferral
    assert (await tokens_of(engine))[RequestKind.LIST] == 0
    clock.advance(seconds=90 + PERMIT_LIFE.total_seconds() + 1)
    await set_tokens(engine, clock, RequestKind.CREATE, 0)
    with pytest.raises(Deferred):  # the tokens of its creation are lost by now
        await limited.call(SPOT.region, CloudCall.CREATE, fine, claim)


async def test_a_deferred_creation_that_is_listed_is_looked_at(
    world: World, engine: AsyncEngine, clock: Clock, cloud: Watched
) -> None:
    replica = replica_of(world, cloud, lists=True)
    assert replica.lister is not None
    deferred_until = clock() + timedelta(minutes=20)
    deferred = {"deferred_call": "create", "deferred_until": deferred_until, "due_at": clock()}
    await add_waiting(engine, clock, AttemptState.PROVISIONING, **deferred)
    await replica.lister.run_once()
    await replica.run_once()
    before, row_before = list(cloud.asked), await row_of(engine)
    await cloud.create(world.attempts.specs.spec(await attempt_row(engine)))
    clock.advance(minutes=4)
    await replica.lister.run_once()
    await replica.run_once()
    row = await row_of(engine)

    assert (before, row_before.deferred_until) == ([], deferred_until)
    assert cloud.asked == ["create", "get"]
    assert (len(row.vm_ids), row.deferred_call) == (2, None)


async def test_an_attempt_that_moved_on_does_not_wait_for_the_call_that_it_deferred(
    world: World, clock: Clock, reconciler: AttemptReconciler
) -> None:
    job = await world.submit()
    await train(world, await boot(world, job["id"]), step=1)
    clock.advance(seconds=1)
    world.cloud.fail_next.append(Throttled("slow down", "OperationNotAllowed", 1200))
    await reconciler.run_once()
    await world.call("POST", f"/v1/fine_tuning/jobs/{job['id']}/cancel")
    clock.advance(seconds=world.pace.settle.total_seconds() + 60)
    await world.jobs.run_once()
    name = scale_set_name((await world.attempts_of(job["id"]))[0]["id"])
    for _ in range(40):
        clock.advance(seconds=10)
        await reconciler.run_once()

    assert name not in world.cloud.billed_names()


async def test_a_call_that_azure_refuses_is_not_made_again_before_azure_allows_it(
    engine: AsyncEngine, clock: Clock, cloud: Watched, reconciler: AttemptReconciler
) -> None:
    await add_waiting(engine, clock, AttemptState.PROVISIONING)
    cloud.fail_next.append(Throttled("slow down", "OperationNotAllowed", 60))
    for _ in range(3):
        await reconciler.run_once()
        clock.advance(seconds=1)
        async with engine.begin() as conn:
            await leases.enqueue(conn, tables.attempts, "att-1", clock())
    calls, row = list(cloud.asked), await row_of(engine)
    clock.advance(seconds=60)
    await reconciler.run_once()

    assert (calls, row.deferred_call) == (["get"], "get")
    assert cloud.asked == ["get", "get", "create"]


async def test_a_deferred_refill_is_neither_made_nor_counted_as_asked_for(
    world: World, engine: AsyncEngine, clock: Clock, cloud: Watched, reconciler: AttemptReconciler
) -> None:
    _, nodes, number = await start_elastic_job(world)
    world.attempts = reconciler
    await set_tokens(engine, clock, RequestKind.UPDATE, -3000)  # six minutes
    number = await shrink(world, nodes, number)
    await _train_on(world, nodes, number)
    get_calls = cloud.asked.count("get")
    for _ in range(2):
        await _train_on(world, nodes, number)
    looks_meanwhile = cloud.asked.count("get") - get_calls  # there is no list
    before, tokens = await row_of(engine), await tokens_of(engine)
    refill_calls = cloud.asked.count("refill")
    for _ in range(8):
        await _train_on(world, nodes, number)
    after = await row_of(engine)

    assert (before.deferred_call, before.refills, refill_calls) == ("refill", 0, 0)
    assert looks_meanwhile > 0
    assert tokens[RequestKind.UPDATE] < -2000
    assert (after.refills, cloud.asked.count("refill")) == (1, 1)
    assert (await tokens_of(engine))[RequestKind.UPDATE] == tokens[RequestKind.UPDATE]  # once


async def test_a_refill_that_azure_defers_is_asked_for_once(
    world: World, engine: AsyncEngine, cloud: Watched, reconciler: AttemptReconciler
) -> None:
    cloud.throttles_refills, world.attempts = True, reconciler
    _, nodes, number = await start_elastic_job(world)
    number = await shrink(world, nodes, number)
    for _ in range(10):  # of 45 s: before Azure allows another one
        await _train_on(world, nodes, number)
    row = await row_of(engine)

    assert (row.state, row.refills, cloud.asked.count("refill")) == (AttemptState.RUNNING, 1, 1)


async def _train_on(world: World, nodes: list[ScriptedNode], number: int) -> None:
    """Let 45 s pass; the survivors send a heartbeat."""
    for node in nodes[:2]:
        await node.say(NodePhase.RUNNING, number, step=5)
    await world.tick(seconds=45)


async def add_waiting(
    engine: AsyncEngine,
    clock: Clock,
    state: AttemptState,
    **columns: Any,  # noqa: ANN401
) -> None:
    ended_values = {"outcome": "cancelled"} if state is AttemptState.TERMINATING else {}
    async with engine.begin() as conn:
        await add_job(conn, clock(), state="running")
        await add_attempt(conn, clock(), state=state, **ended_values, **columns)


async def _claimed(engine: AsyncEngine, clock: Clock, **columns: Any) -> Claim:  # noqa: ANN401
    await add_waiting(engine, clock, AttemptState.PROVISIONING, **columns)
    async with engine.begin() as conn:
        ((claim, _),) = await attempts.claim_due(conn, clock(), 1)
    return claim


async def set_tokens(engine: AsyncEngine, clock: Clock, kind: RequestKind, tokens: float) -> None:
    """So many tokens are in the bucket; less than 0: taken in advance."""
    row = {"region": SPOT.region, "kind": kind, "tokens": tokens, "at": clock()}
    values = {"tokens": tokens, "at": clock()}
    async with engine.begin() as conn:
        add = upsert(cloud_tokens).values(row)
        await conn.execute(
            add.on_conflict_do_update(index_elements=[_t.region, _t.kind], set_=values)
        )


async def tokens_of(engine: AsyncEngine) -> dict[str, float]:
    async with engine.connect() as conn:
        rows = await conn.execute(select(_t.kind, _t.tokens).where(_t.region == SPOT.region))
        return {row.kind: row.tokens for row in rows}


async def row_of(engine: AsyncEngine) -> Any:  # noqa: ANN401 - a row
    async with engine.connect() as conn:
        return (await conn.execute(select(tables.attempts))).one()


async def attempt_row(engine: AsyncEngine) -> attempts.AttemptRow:
    async with engine.connect() as conn:
        row = await attempts.find(conn, "att-1")
    assert row is not None
    return row
