"""While a job trains it is told to save by evictions, answers and prices as they are there now."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db import attempt_moves, attempts, events, market, tables
from service.domain.attempt import Move
from service.domain.cadence import Known, basis
from service.domain.fleet import Price
from service.domain.market import Band
from service.domain.states import AttemptState, Outcome
from service.domain.traces import place_of
from service.reconciler.cadences import CHANGED, Cadences
from tests.clock import Clock
from tests.integration.rows import add, add_attempt, add_job, claim_attempt
from tests.scripted_node import ScriptedNode, boot, metrics, train
from tests.world import PRICE, SPOT, World
from trainer.contract import (
    UNDERSTANDS,
    Cadence,
    Heartbeat,
    HeartbeatAnswer,
    NodePhase,
    SaveCost,
    Saving,
    interval_of,
)

COST = SaveCost(stall=0.5, upload=2.0, blocks=10)
PLANNED = Cadence(evictions_per_hour=0.1, answered=0.95, seconds_per_block=0.001)
PLACE = {"region": SPOT.region, "vm_size": SPOT.vm_size, "nodes": 2}
OPTION = {"checkpoint_seconds": 840.0, "cadence": PLANNED.to_plain(), **PLACE}
SAYS = {"save_every": 840.0, "save_cost": COST.to_plain()}  # a trainer that hears what it is told


@pytest.fixture
def watch(engine: AsyncEngine, clock: Clock) -> Cadences:
    return Cadences(engine=engine, hazard_per_hour=0.05, now=clock)


async def trains(conn: AsyncConnection, clock: Clock, **attempt: Any) -> None:  # noqa: ANN401
    """A job on two machines whose trainer has measured a save."""
    plan = {"options": [OPTION], "recipe": {}}
    await add_job(conn, clock(), state="running", plan=plan, progress=SAYS)
    await add_attempt(conn, clock(), **attempt)
    await opens(conn, clock, 1)


async def opens(
    conn: AsyncConnection,
    clock: Clock,
    number: int,
    attempt: str = "att-1",
    *,
    lost: int = 0,
    vms: Sequence[str] = (),
    job: str = "job",
) -> None:
    """A generation that does so many steps again, of these machines."""
    members = [{"vm_id": vm, "node_rank": rank} for rank, vm in enumerate(vms)]
    row = {"job_id": job, "number": number, "attempt_id": attempt}
    row |= {"content": {"members": members}, "lost_steps": lost, "opened_at": clock()}
    await add(conn, tables.generations, **row)


async def storm(engine: AsyncEngine, clock: Clock, evictions: int, *, ago: timedelta) -> None:
    """So many holds of another job were evicted there, after hardly any time; gone by now."""
    at = clock() - ago
    async with engine.begin() as conn:
        await add_job(conn, at, id="other", state="cancelled", finished_at=at)
        for n in range(evictions):
            over = {"state": "ended", "outcome": "evicted", "ended_at": clock(), "since": clock()}
            over |= {"ran_at": at, "over_at": at}
            await add_attempt(conn, at, id=f"lost-{n}", job_id="other", number=n + 1, **over)


async def known(engine: AsyncEngine, attempt: str = "att-1") -> Known:
    """What the nodes of the attempt are told."""
    async with engine.connect() as conn:
        query = select(tables.attempts.c.cadence).where(tables.attempts.c.id == attempt)
        return Known.from_dict((await conn.execute(query)).scalar_one())


async def first_told(
    database: AsyncEngine,
    watch: Cadences,
    clock: Clock,
    **values: Any,  # noqa: ANN401 - columns
) -> Cadence:
    """What a job that trains is told before anything has happened."""
    async with database.begin() as conn:
        await trains(conn, clock, **values)
    await watch.run_once()
    return (await known(database)).told


async def story(engine: AsyncEngine, job: str = "job") -> list[str]:
    """What the user was told of the interval, oldest first."""
    async with engine.connect() as conn:
        told = await events.newest(conn, job, after=None, limit=100) or []
    return [event.message for event in reversed(told) if event.code == CHANGED]


async def hears(node: ScriptedNode, number: int, step: int) -> Cadence | None:
    """What a heartbeat of a trainer that understands it is answered."""
    assert node.seat is not None
    node.seq += 1
    beat = Heartbeat(
        epoch=node.seat.epoch,
        seq=node.seq,
        phase=NodePhase.RUNNING,
        generation=number,
        step=step,
        free_port=29500,
    )
    answer = await node.world.http.post(
        f"/internal/nodes/{node.seat.node_id}/heartbeat?understands={UNDERSTANDS}",
        content=beat.to_json(),
        headers={"authorization": f"Bearer {node.seat.node_token}"},
    )
    assert answer.status_code == 200, answer.text
    return HeartbeatAnswer.from_json(answer.content).cadence


async def saves(node: ScriptedNode, number: int, step: int, cadence: Cadence) -> float:
    """A trainer says how often it saves by this cadence."""
    every = interval_of(cadence, COST)
    said = Saving(every=every, cost=COST)
    await node.say(NodePhase.RUNNING, number, step=step, metrics=(metrics(step),), saving=said)
    return every


async def test_a_job_is_told_that_evictions_rose_and_saves_more_often_and_says_so(
    world: World, watch: Cadences, clock: Clock
) -> None:
    job = await world.submit()
    nodes = await boot(world, job["id"])
    number = await train(world, nodes, step=1)
    await watch.run_once()
    old = await nodes[0].say(NodePhase.RUNNING, number, step=2)  # it does not understand
    as_planned = (await world.job(job["id"]))["checkpoint_interval"]
    first = await hears(nodes[0], number, 3)
    assert first is not None
    before = await saves(nodes[0], number, 4, first)
    await storm(world.engine, clock, 6, ago=timedelta(minutes=20))
    clock.advance(minutes=5)  # lives of a month are read anew
    await watch.run_once()
    second = await hears(nodes[0], number, 5)
    assert second is not None
    after = await saves(nodes[0], number, 6, second)

    shown = (await world.job(job["id"]))["checkpoint_interval"]
    async with world.engine.begin() as conn:
        query = select(tables.attempts.c.id)
        attempt = (await conn.execute(query.where(tables.attempts.c.job_id == job["id"]))).scalar()
        await opens(conn, clock, number + 1, str(attempt), job=job["id"])
    begun_anew = (await world.job(job["id"]))["checkpoint_interval"]
    (told,) = await story(world.engine, job["id"])
    assert "cadence" not in old.json()
    assert as_planned["seconds"] == job["plan"]["options"][0]["checkpoint_seconds"]
    assert as_planned["since"] is None
    assert begun_anew == as_planned
    assert first.evictions_per_hour == pytest.approx(2 * 0.05, rel=0.01)
    assert second.evictions_per_hour == pytest.approx(4 * first.evictions_per_hour, rel=0.01)
    assert after == pytest.approx(before / 2, rel=0.01)
    assert told.startswith("Checkpoints every ")
    assert told.endswith("evictions of a machine here rose from 0.05 to 0.2 per hour.")
    assert shown == {
        "seconds": after,
        "chosen_by": "planner",
        "evictions_per_hour": second.evictions_per_hour,
        "notices_answered": first.answered,
        "since": int(clock().timestamp()),
    }


async def test_an_eviction_next_door_is_told_to_the_trainer_for_ten_minutes_and_to_nobody_else(
    engine: AsyncEngine, watch: Cadences, clock: Clock
) -> None:
    usual = await first_told(engine, watch, clock)
    await storm(engine, clock, 1, ago=timedelta(0))

    await watch.run_once()
    raised = (await known(engine)).told
    clock.advance(minutes=11)
    changed, again = await watch.run_once(), await watch.run_once()

    assert (changed, again) == (1, 0)
    assert raised.evictions_per_hour > 3 * usual.evictions_per_hour
    assert (await known(engine)).told.evictions_per_hour < 1.6 * usual.evictions_per_hour
    assert (await known(engine)).since == clock().timestamp()
    assert await story(engine) == []


async def test_a_band_that_azure_changes_and_a_price_that_moves_are_told_while_it_trains(
    engine: AsyncEngine, watch: Cadences, clock: Clock
) -> None:
    first = await first_told(engine, watch, clock)
    dear = Price(hourly=2 * PRICE.hourly, on_demand_hourly=PRICE.on_demand_hourly)
    async with engine.begin() as conn:
        await market.save_bands(conn, {place_of(SPOT): Band.ABOVE}, clock())
        await attempts.reprice(conn, SPOT, dear)

    await watch.run_once()

    second = (await known(engine)).told
    assert second.evictions_per_hour == pytest.approx(2 * 0.25)
    assert second.seconds_per_block == pytest.approx(first.seconds_per_block * 8 / 16.88)


async def test_on_demand_a_job_saves_once_an_hour_and_the_user_is_told_why(
    engine: AsyncEngine, watch: Cadences, clock: Clock
) -> None:
    over = {"state": "ended", "outcome": "evicted", "ended_at": clock(), "ran_at": clock()}
    said = basis(PLANNED, 2, place_of(SPOT))
    async with engine.begin() as conn:
        await trains(conn, clock, **over, cadence={"said": said.to_plain()})
        bought = {"capacity_type": "on_demand", "hourly": 32}
        await add_attempt(conn, clock(), id="att-2", number=2, state="starting", **bought)
        await opens(conn, clock, 2, "att-2")

    await watch.run_once()

    calm = (await known(engine, "att-2")).told
    (told,) = await story(engine)
    assert calm.evictions_per_hour == 0.0
    assert interval_of(calm, COST) == 3600.0
    assert told.startswith("Checkpoints every 1.0 h instead of ")
    assert told.endswith("on demand nothing is evicted.")


async def test_evictions_of_the_job_that_lost_work_count_against_the_plans_share_of_answered_ones(
    engine: AsyncEngine, watch: Cadences, clock: Clock
) -> None:
    over = {"state": "ended", "outcome": "evicted", "ended_at": clock(), "ran_at": clock()}
    async with engine.begin() as conn:
        await trains(conn, clock, **over)
        await add_attempt(conn, clock(), id="att-2", number=2, **over)
        await opens(conn, clock, 2, "att-2", lost=7)
        await add_attempt(conn, clock(), id="att-3", number=3, state="starting")
    too_early = await watch.run_once()  # whether the second eviction was answered is not known yet

    async with engine.begin() as conn:
        await opens(conn, clock, 3, "att-3")
    await watch.run_once()

    assert too_early == 0
    assert (await known(engine, "att-3")).told.answered == pytest.approx((9.5 + 1) / 12)


async def test_an_eviction_that_an_attempt_outlives_counts_as_well_and_at_once(
    engine: AsyncEngine, watch: Cadences, clock: Clock
) -> None:
    async with engine.begin() as conn:
        await trains(conn, clock)
        await opens(conn, clock, 2, vms=["a", "b"])  # after an error of the trainer
    await watch.run_once()
    before = await known(engine)
    async with engine.begin() as conn:
        await opens(conn, clock, 3, vms=["b"], lost=7)
        await opens(conn, clock, 4, vms=["b", "c"])  # one joins
        await conn.execute(update(tables.attempts).values(survived=1, vm_ids=["b", "c"]))

    counts = [await watch.run_once(), await watch.run_once()]

    assert counts == [1, 0]
    assert before.answered == 0.95
    assert (await known(engine)).answered == pytest.approx(9.5 / 11)


async def test_a_lost_machine_is_told_to_the_trainer_and_is_no_news_to_the_user(
    engine: AsyncEngine, watch: Cadences, clock: Clock
) -> None:
    both = await first_told(engine, watch, clock, vm_ids=["a", "b"])
    async with engine.begin() as conn:
        await conn.execute(update(tables.attempts).values(vm_ids=["a"]))

    await watch.run_once()

    one = (await known(engine)).told
    assert one.evictions_per_hour == pytest.approx(both.evictions_per_hour / 2)
    assert await story(engine) == []


async def test_an_eviction_counts_from_when_machines_were_taken_and_not_from_their_teardown(
    engine: AsyncEngine, watch: Cadences, clock: Clock
) -> None:
    usual = await first_told(engine, watch, clock)

    await storm(engine, clock, 1, ago=timedelta(minutes=11))  # its teardown has ended just now

    assert await watch.run_once() == 0
    assert (await known(engine)).told == usual


async def test_when_an_attempt_was_taken_stays_known_once_its_machines_are_gone(
    engine: AsyncEngine, clock: Clock
) -> None:
    async with engine.begin() as conn:
        await trains(conn, clock)
    taken = clock()
    taking = Move(to=AttemptState.TERMINATING, outcome=Outcome.EVICTED, reason="taken back")
    for step in (taking, replace(taking, to=AttemptState.ENDED)):
        async with engine.begin() as conn:
            await attempt_moves.move(conn, *await claim_attempt(conn, clock()), step, clock())
        clock.advance(minutes=3)

    async with engine.connect() as conn:
        row = (await conn.execute(select(tables.attempts))).one()
    assert row.over_at == taken
    assert row.since == row.ended_at == taken + timedelta(minutes=3)


async def test_replicas_that_look_at_other_times_do_not_contradict_each_other(
    engine: AsyncEngine, watch: Cadences, clock: Clock
) -> None:
    async with engine.begin() as conn:
        await trains(conn, clock)
    await watch.run_once()
    clock.advance(seconds=60)
    await storm(engine, clock, 6, ago=timedelta(seconds=30))
    other = Cadences(engine=engine, hazard_per_hour=0.05, now=clock)

    counts = [await watch.run_once(), await other.run_once(), await watch.run_once()]

    assert counts == [1, 0, 0]


async def test_a_month_of_lives_is_read_once_in_five_minutes(
    engine: AsyncEngine, watch: Cadences, clock: Clock
) -> None:
    await first_told(engine, watch, clock)
    await storm(engine, clock, 6, ago=timedelta(minutes=20))

    counts = []
    for _ in range(5):
        clock.advance(minutes=1)
        counts.append(await watch.run_once())

    assert counts == [0, 0, 0, 0, 1]


async def test_nonsense_of_one_node_keeps_nobody_else_from_being_told(
    engine: AsyncEngine, watch: Cadences, clock: Clock
) -> None:
    async with engine.begin() as conn:
        await trains(conn, clock)
        nonsense = {"save_every": 9.0, "save_cost": {"stall": -1e9, "upload": 0.0, "blocks": 1}}
        plan = {"options": [OPTION], "recipe": {}}
        await add_job(conn, clock(), id="bad", state="running", plan=plan, progress=nonsense)
        await add_attempt(conn, clock(), id="att-0", job_id="bad")
        await opens(conn, clock, 1, "att-0", job="bad")

    assert await watch.run_once() == 1
    assert (await known(engine)).since == clock().timestamp()


async def test_an_interval_that_the_user_fixed_stays(
    engine: AsyncEngine, watch: Cadences, clock: Clock
) -> None:
    async with engine.begin() as conn:
        plan = {"options": [{"checkpoint_seconds": 60.0, "cadence": None}]}
        await add_job(conn, clock(), state="running", plan=plan, progress=SAYS)
        await add_attempt(conn, clock())
        await opens(conn, clock, 1)

    await watch.run_once()
    await storm(engine, clock, 6, ago=timedelta(minutes=20))
    clock.advance(minutes=5)

    assert await watch.run_once() == 0
    async with engine.connect() as conn:
        query = select(tables.attempts.c.cadence).where(tables.attempts.c.id == "att-1")
        assert (await conn.execute(query)).scalar_one() == {}
    assert await story(engine) == []


async def test_of_two_replicas_that_see_the_same_one_tells_the_user(
    engine: AsyncEngine, watch: Cadences, clock: Clock
) -> None:
    await first_told(engine, watch, clock)
    await storm(engine, clock, 6, ago=timedelta(minutes=20))
    clock.advance(minutes=5)

    counts = await asyncio.gather(watch.run_once(), watch.run_once())

    assert sorted(counts) == [0, 1]
    assert len(await story(engine)) == 1


async def test_azure_ml_gives_no_notice(engine: AsyncEngine, watch: Cadences, clock: Clock) -> None:
    assert (await first_told(engine, watch, clock, engine="azureml")).answered == 0.0
