"""Heartbeats in a crowd are heard as they are alone; a long poll is answered by one look."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db import generations, jobs, nodes, tables
from service.db.engine import make_engine
from service.domain.node import NodeRecord
from service.operations import nodes as hearing_alone
from service.operations.heartbeats import Hearing
from tests.clock import Clock
from tests.integration.rows import add_attempt, add_job, add_node, generation
from tests.scripted_node import metrics as measured
from trainer.contract import Heartbeat, NodePhase, Span, StepMetrics

SOME = range(20)


async def training(conn: AsyncConnection, clock: Clock, count: int = 1) -> list[NodeRecord]:
    """Nodes of one attempt that have done their first step in generation 1."""
    await add_job(conn, clock(), state="running")
    await add_attempt(conn, clock())
    made = [await add_node(conn, clock(), f"vm-{n}") for n in range(count)]
    rows = [
        replace(n, phase=NodePhase.RUNNING, generation=1, step=1, heartbeat_seq=1) for n in made
    ]
    for row in rows:
        await nodes.save(conn, row)
    await generations.begin_all(conn, [generation(1, made)], (), clock())
    return rows


def beat(seq: int, step: int = 2, **more: object) -> Heartbeat:
    values = {"epoch": 1, "generation": 1, "free_port": 29500} | more
    return Heartbeat(seq=seq, phase=NodePhase.RUNNING, step=step, **values)  # type: ignore[arg-type]


async def test_a_crowd_is_heard_and_each_gets_its_own_answer(
    engine: AsyncEngine, clock: Clock
) -> None:
    async with engine.begin() as conn:
        crowd = await training(conn, clock, count=len(SOME))
    clock.advance(seconds=10)
    hearing = Hearing(engine)

    answers = await asyncio.gather(
        *(hearing.beat(n.node_id, beat(2, step=5), clock()) for n in crowd)
    )

    assert all(a is not None and a.job_id == "job" for a in answers)
    async with engine.connect() as conn:
        after = await nodes.of_attempt(conn, "att-1")
    assert {(n.heartbeat_seq, n.step, n.heard_at) for n in after} == {(2, 5, clock().timestamp())}


@pytest.mark.parametrize(
    "said",
    [
        beat(1),  # heard already
        beat(2, epoch=2),
        beat(2, generation=2),
        beat(2, out_of_memory=True),
        beat(2, error="ValueError"),
        beat(2, spans=(Span(name="load", started_at=1.0, ended_at=2.0),)),
        beat(2, metrics=(measured(2, loss=float("nan")),)),
    ],
)
async def test_whatever_may_be_news_is_heard_by_itself(
    engine: AsyncEngine, clock: Clock, said: Heartbeat
) -> None:
    async with engine.begin() as conn:
        (node,) = await training(conn, clock)

    assert await Hearing(engine).beat(node.node_id, said, clock()) is None
    async with engine.connect() as conn:
        found = await nodes.find(conn, node.node_id)
    assert found == replace(node, registered_at=clock().timestamp())


async def test_a_crowd_with_one_that_cannot_be_kept_is_heard_one_by_one(
    engine: AsyncEngine, clock: Clock
) -> None:
    async with engine.begin() as conn:
        wild, *healthy = await training(conn, clock, count=3)
    hearing = Hearing(engine)
    batch = tuple(replace(measured(step), seconds=1e308) for step in (2, 3))  # what a sum is not

    answers = await asyncio.gather(
        hearing.beat(wild.node_id, beat(2, step=3, metrics=batch), clock()),
        *(hearing.beat(n.node_id, beat(2), clock()) for n in healthy),
    )

    assert answers == [None] * 3


@pytest.mark.parametrize("change", [{"state": "terminating", "outcome": "evicted"}])
async def test_nodes_of_an_attempt_that_is_over_are_not_heard_in_the_crowd(
    engine: AsyncEngine, clock: Clock, change: dict[str, str]
) -> None:
    async with engine.begin() as conn:
        (node,) = await training(conn, clock)
        await conn.execute(tables.attempts.update().values(change))

    assert await Hearing(engine).beat(node.node_id, beat(2), clock()) is None


async def test_what_was_measured_is_the_same_by_either_way(
    engine: AsyncEngine, clock: Clock
) -> None:
    batch = tuple(measured(step) for step in (2, 3))
    async with engine.begin() as conn:
        (node,) = await training(conn, clock)
    hearing = Hearing(engine)
    assert await hearing.beat(node.node_id, beat(2, step=3, metrics=batch), clock())
    crowd = await _kept(engine)
    async with engine.begin() as conn:
        await conn.execute(tables.metrics.delete())
        await conn.execute(tables.jobs.update().values(progress={}))
        await hearing_alone.hear(conn, node.node_id, beat(3, step=3, metrics=batch), clock())

    assert await _kept(engine) == crowd
    assert crowd[1]["step"] == 3


async def test_a_row_that_somebody_holds_keeps_nobody_waiting(
    engine: AsyncEngine, clock: Clock
) -> None:
    async with engine.begin() as conn:
        held, free = await training(conn, clock, count=2)
    hearing = Hearing(engine)

    async with engine.begin() as conn:
        await nodes.lock(conn, held.node_id)
        answers = await asyncio.gather(
            hearing.beat(held.node_id, beat(2), clock()),
            hearing.beat(free.node_id, beat(2), clock()),
        )

    assert answers[0] is None
    assert answers[1] is not None


async def test_an_order_tells_what_a_long_poll_must_know(engine: AsyncEngine, clock: Clock) -> None:
    async with engine.begin() as conn:
        (node,) = await training(conn, clock)
    clock.advance(seconds=timedelta(hours=1).total_seconds())

    known, unknown = await asyncio.gather(
        Hearing(engine).order(node.node_id, 0), Hearing(engine).order("node-of-nobody", 0)
    )

    assert unknown is None
    assert known is not None
    assert (known.directive_seq, known.over) == (0, False)


async def _kept(engine: AsyncEngine) -> tuple[list[StepMetrics], dict[str, float]]:
    async with engine.connect() as conn:
        m = tables.metrics
        rows = (await conn.execute(select(m).order_by(m.c.step))).mappings().all()
        job = await jobs.find(conn, "job")
    assert job is not None
    return [dict(r) for r in rows], job.progress  # type: ignore[misc]


async def test_long_polls_leave_prepared_what_heartbeats_need(
    database_url: str, clock: Clock
) -> None:
    engine = make_engine(database_url, pool_size=1)
    async with engine.begin() as conn:
        (node,) = await training(conn, clock)
    hearing = Hearing(engine)
    for seq in range(2, 12):
        assert await hearing.beat(node.node_id, beat(seq), clock())
        assert await hearing.order(node.node_id, 0)

    async with engine.connect() as conn:
        found = await conn.execute(text("select statement from pg_prepared_statements"))
        prepared = [s for s in found.scalars() if "update nodes" in s or "asked.after" in s]
    await engine.dispose()
    assert len(prepared) == 2
