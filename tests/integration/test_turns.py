"""Who finds no place among the calls to a region: it keeps its turn, and sees to its nodes."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db import leases, tables
from service.domain.states import AttemptState
from service.reconciler.attempts import AttemptReconciler
from service.reconciler.polite import PoliteCloud
from tests.clock import Clock
from tests.integration.rows import add_attempt, add_job
from tests.scripted_node import boot, train
from tests.world import SPOT, World

FAR = timedelta(seconds=20)
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


async def _due_at(engine: AsyncEngine) -> datetime:
    async with engine.connect() as conn:
        at: datetime = (await conn.execute(select(_a.due_at))).scalar_one()
    return at


async def _state(engine: AsyncEngine) -> str:
    async with engine.connect() as conn:
        return str((await conn.execute(select(_a.state))).scalar_one())
