"""Heartbeats in a many are heard as they are alone; a long poll is answered by one look."""

import asyncio
from dataclasses import replace

from sqlalchemy import select, text
from sqlalchemy.exc import DataError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.attempts import generations, nodes
from service.db.core.engine import make_engine
from service.db.jobs import jobs
from service.db.schema import tables
from service.domain.lifecycle.node import NodeRecord
from service.operations.nodes.heartbeats import HeartbeatBatcher, NodeAnswer
from tests.clock import Clock
from tests.integration.db.rows import add_attempt, add_job, add_node, generation
from tests.nodes.scripted_node import metrics as measured
from trainer.contract import DirectiveKind, Heartbeat, NodePhase

SOME = range(20)


async def add_training_nodes(
    conn: AsyncConnection, clock: Clock, count: int = 1
) -> list[NodeRecord]:
    """Nodes of one attempt that have done their first step in generation 1."""
    await add_job(conn, clock(), state="running")
    await add_attempt(conn, clock())
    node_records = [await add_node(conn, clock(), f"vm-{n}") for n in range(count)]
    rows = [
        replace(n, phase=NodePhase.RUNNING, generation=1, step=1, heartbeat_seq=1)
        for n in node_records
    ]
    for row in rows:
        await nodes.save(conn, row)
    await generations.begin_all(conn, [generation(1, node_records)], (), clock())
    return rows


def heartbeat(seq: int, step: int = 2, **members: object) -> Heartbeat:
    values = {"epoch": 1, "generation": 1, "free_port": 29500} | members
    return Heartbeat(seq=seq, phase=NodePhase.RUNNING, step=step, **values)  # type: ignore[arg-type]


async def test_heartbeats_of_a_batch_get_an_answer_each(engine: AsyncEngine, clock: Clock) -> None:
    async with engine.begin() as conn:
        node_ids = await add_training_nodes(conn, clock, count=len(SOME))
        await nodes.direct_all(conn, {node_ids[0].node_id: (DirectiveKind.STOP, 1)})
    clock.advance(seconds=10)
    batcher = HeartbeatBatcher(engine)

    answers = await asyncio.gather(
        *(batcher.record(n.node_id, heartbeat(2, step=5), clock()) for n in node_ids)
    )

    assert [a.directive_seq for a in answers] == [1, *[0] * (len(SOME) - 1)]
    async with engine.connect() as conn:
        after = await nodes.of_attempt(conn, "att-1")
    assert {(n.heartbeat_seq, n.step, n.heard_at) for n in after} == {(2, 5, clock().timestamp())}


async def test_one_invalid_heartbeat_does_not_fail_its_batch(
    engine: AsyncEngine, clock: Clock
) -> None:
    async with engine.begin() as conn:
        invalid_node, *healthy = await add_training_nodes(conn, clock, count=3)
    batcher = HeartbeatBatcher(engine)
    batch = tuple(replace(measured(step), seconds=1e308) for step in (2, 3))  # what a sum is not

    answers = await asyncio.gather(
        batcher.record(invalid_node.node_id, heartbeat(2, step=3, metrics=batch), clock()),
        *(batcher.record(n.node_id, heartbeat(2), clock()) for n in healthy),
        return_exceptions=True,
    )

    assert [type(answer) for answer in answers] == [DataError, NodeAnswer, NodeAnswer]


async def test_what_is_no_number_is_kept_and_left_out_of_the_progress(
    engine: AsyncEngine, clock: Clock
) -> None:
    batch = (measured(2), measured(3, loss=float("nan")), measured(4, loss=float("inf")))
    async with engine.begin() as conn:
        (node,) = await add_training_nodes(conn, clock)

    await HeartbeatBatcher(engine).record(
        node.node_id, heartbeat(2, step=4, metrics=batch), clock()
    )

    async with engine.connect() as conn:
        steps = await conn.execute(select(tables.metrics.c.step).order_by(tables.metrics.c.step))
        job = await jobs.find(conn, "job")
    assert job is not None
    assert list(steps.scalars()) == [2, 3, 4]
    figures = [job.progress[name] for name in ("step", "loss", "seconds_per_step")]
    assert figures == [4, None, 0.5]


async def test_long_polls_leave_prepared_what_heartbeats_need(
    database_url: str, clock: Clock
) -> None:
    engine = make_engine(database_url, pool_size=1)
    async with engine.begin() as conn:
        (node,) = await add_training_nodes(conn, clock)
    batcher = HeartbeatBatcher(engine)
    for seq in range(2, 12):
        await batcher.record(node.node_id, heartbeat(seq), clock())
        assert await batcher.find_directive(node.node_id, 0)

    async with engine.connect() as conn:
        rows = await conn.execute(text("select statement from pg_prepared_statements"))
        prepared = [s for s in rows.scalars() if "update nodes" in s or "asked.after" in s]
    await engine.dispose()
    assert len(prepared) == 2
