"""Who may not ask about a region for now: it keeps its turn, and sees to its nodes."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from service.cloud.fake import FakeCloud
from service.cloud.provider import CloudError, ScaleSetNotFound, Throttled
from service.db.attempts import attempts
from service.db.core import leases
from service.db.core.leases import Claim
from service.db.schema import tables
from service.domain.cloud.fleet import scale_set_name
from service.domain.cloud.politeness import Kind
from service.domain.states import AttemptState
from service.reconciler.attempts import AttemptReconciler
from service.reconciler.polite import PoliteCloud
from tests.clock import Clock
from tests.integration.rows import add_attempt, add_job
from tests.scripted_node import boot, train
from tests.world import SPOT, World

FAR = timedelta(seconds=20)
LONG = 200.0  # s, that a region is left alone
MOST_LOOKS = 60
_a = tables.attempts.c


@pytest.fixture
def polite(world: World, engine: AsyncEngine, clock: Clock) -> PoliteCloud:
    """One call at a time; a crowd has come before us."""
    made = PoliteCloud(engine=engine, cloud=world.cloud, now=clock, at_once=1)
    made._slots[SPOT.region, None] = clock() + FAR
    return made


@pytest.fixture
def reconciler(world: World, polite: PoliteCloud) -> AttemptReconciler:
    """Of a service that asks politely."""
    return replace(world.attempts, polite=polite)


async def test_a_machine_that_registers_early_costs_its_attempt_neither_turn_nor_look(
    engine: AsyncEngine, clock: Clock, polite: PoliteCloud, reconciler: AttemptReconciler
) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock(), state="running")
        await add_attempt(conn, clock(), state="provisioning")
    due = []
    async with polite._place(SPOT.region, None):
        for _ in range(3):
            assert await reconciler.run_once() == 1
            due.append(await _due_at(engine))
            clock.advance(seconds=1)
            async with engine.begin() as conn:
                # Without a hint: only who looks all the same would see it.
                await conn.execute(update(tables.jobs).values(cancel_requested_at=clock()))
                await leases.hint_all_by(conn, tables.attempts, {"att-1": clock()}, clock())

    assert due[0] > clock() + FAR - timedelta(seconds=5)
    assert due == [due[0]] * 3
    assert await _state(engine) == AttemptState.PROVISIONING


async def test_a_wish_is_seen_to_before_the_turn_and_the_turn_stays(
    engine: AsyncEngine, clock: Clock, polite: PoliteCloud, reconciler: AttemptReconciler
) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock(), state="running")
        await add_attempt(conn, clock(), state="provisioning")
    async with polite._place(SPOT.region, None):
        await reconciler.run_once()
        turn = await _due_at(engine)
        async with engine.begin() as conn:
            await conn.execute(update(tables.jobs).values(cancel_requested_at=clock()))
            await leases.hint(conn, tables.attempts, "att-1", clock())
        await reconciler.run_once()
        await reconciler.run_once()  # now it is to be deleted, and that asks for a place

    assert await _state(engine) == AttemptState.TERMINATING
    assert await _due_at(engine) == turn


async def test_nodes_are_seen_to_as_often_as_ever_while_there_is_no_place(
    world: World,
    engine: AsyncEngine,
    clock: Clock,
    polite: PoliteCloud,
    reconciler: AttemptReconciler,
) -> None:
    job = await world.submit()
    await train(world, await boot(world, job["id"]), step=1)
    polite._slots[SPOT.region, None] = clock() + FAR
    async with engine.begin() as conn:
        await conn.execute(update(tables.attempts).values(due_at=clock()))
    async with polite._place(SPOT.region, None):
        assert await reconciler.run_once() == 1

    assert await _due_at(engine) <= clock() + world.pace.poll


async def test_nodes_are_seen_to_as_often_as_ever_while_their_region_is_left_alone(
    world: World,
    engine: AsyncEngine,
    clock: Clock,
    polite: PoliteCloud,
    reconciler: AttemptReconciler,
) -> None:
    job = await world.submit()
    await train(world, await boot(world, job["id"]), step=1)
    await _fail_until_left_alone(polite, clock)
    looks = list[int]()
    while await _state(engine) == AttemptState.RUNNING and len(looks) < MOST_LOOKS:
        clock.advance(seconds=world.pace.poll.total_seconds())
        looks.append(await reconciler.run_once())

    assert set(looks) == {1}
    silent = len(looks) * world.pace.poll
    assert world.pace.silence <= silent <= world.pace.silence + 3 * world.pace.poll


async def test_an_attempt_that_moved_on_does_not_wait_for_the_turn_it_had_before(
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

    assert name not in world.cloud.costing()


@pytest.mark.parametrize("why", ["tokens", "circuit", "Azure"])
async def test_who_comes_before_its_turn_is_refused_again_and_nothing_is_spent_on_it(
    engine: AsyncEngine, clock: Clock, why: str
) -> None:
    cloud = FakeCloud(now=clock)
    polite = PoliteCloud(engine=engine, cloud=cloud, now=clock)
    if why == "tokens":
        polite.times = 0.0001
    if why == "circuit":
        await _fail_until_left_alone(polite, clock)
    if why == "Azure":
        cloud.fail_next.append(Throttled("slow down", "OperationNotAllowed", 60))
    claim = await _claimed(engine, clock)
    at = polite.at(SPOT.region, claim)
    with pytest.raises(Throttled) as first:
        await at.get("rk-1")
    slots, asked = dict(polite._slots), cloud.calls

    clock.advance(seconds=0.5)
    with pytest.raises(Throttled, match="turn") as again:
        await at.get("rk-1")

    assert again.value.retry_after == pytest.approx(first.value.retry_after - 0.5, abs=1)
    assert (polite._slots, cloud.calls) == (slots, asked)


async def test_another_call_and_one_after_news_have_no_turn_to_wait_for(
    engine: AsyncEngine, clock: Clock
) -> None:
    cloud = FakeCloud(now=clock)
    polite = PoliteCloud(engine=engine, cloud=cloud, now=clock)
    cloud.fail_next.append(Throttled("slow down", "OperationNotAllowed", 60))
    claim = await _claimed(engine, clock)
    with pytest.raises(Throttled):
        await polite.at(SPOT.region, claim).get("rk-1")

    with pytest.raises(ScaleSetNotFound):
        await polite.at(SPOT.region, claim).delete("rk-1")
    with pytest.raises(ScaleSetNotFound):
        await polite.at(SPOT.region, replace(claim, hints=claim.hints + 1)).get("rk-1")


async def _claimed(engine: AsyncEngine, clock: Clock) -> Claim:
    async with engine.begin() as conn:
        await add_job(conn, clock())
        await add_attempt(conn, clock())
        ((claim, _),) = await attempts.claim_due(conn, clock(), 1)
    return claim


async def _fail_until_left_alone(polite: PoliteCloud, clock: Clock) -> None:
    async def failing() -> None:
        raise CloudError("InternalServerError")

    while True:  # the longer the more it failed; here until it is so for five minutes
        try:
            await polite.ask(SPOT.region, [Kind.GET], failing)
        except Throttled as refusal:
            if refusal.retry_after > LONG:
                return
            clock.advance(seconds=refusal.retry_after)
        except CloudError:
            continue


async def _due_at(engine: AsyncEngine) -> datetime:
    async with engine.connect() as conn:
        at: datetime = (await conn.execute(select(_a.due_at))).scalar_one()
    return at


async def _state(engine: AsyncEngine) -> str:
    async with engine.connect() as conn:
        return str((await conn.execute(select(_a.state))).scalar_one())
