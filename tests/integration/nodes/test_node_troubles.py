"""What a node tells of its troubles becomes events that a user reads, each once."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import func, select

from service.db.attempts.nodes import MOST_SPANS
from service.db.jobs.events import MAX_PER_CODE
from service.db.schema import tables
from service.domain import tokens
from tests.integration.db.rows import registration
from tests.integration.nodes.test_protocol import boot_job
from tests.nodes.scripted_node import ScriptedNode, metrics, train
from tests.world import SECRET, World
from trainer.contract import NodePhase, Span, Trouble

BEGUN = Trouble(kind="uploads", message="Checkpoints cannot be uploaded\0\ud83d", since=1000.0)
OVER = Trouble(kind="uploads", message=BEGUN.message, since=1000.0, until=1090.0)


async def test_delayed_uploads_are_one_warning_and_one_all_clear(world: World) -> None:
    nodes = await boot_job(world)
    number = await train(world, nodes, step=1)
    for troubles in ((BEGUN,), (BEGUN,), (), (OVER,), (BEGUN, OVER)):  # answers get lost
        await nodes[0].say(NodePhase.RUNNING, number, step=1, troubles=troubles)
    second_trouble = Trouble(kind="uploads", message="again", since=2000.0)
    await nodes[0].say(NodePhase.RUNNING, number, step=1, troubles=(second_trouble,))

    events = await _events(world, nodes[0])
    assert [(e["level"], e["code"]) for e in events] == [
        ("warn", "checkpoint.delayed"),
        ("info", "checkpoint.caught_up"),
        ("warn", "checkpoint.delayed"),
    ]
    assert "cannot be uploaded" in events[0]["message"]
    assert "after 90 s" in events[1]["message"]


@pytest.mark.parametrize(
    ("kind", "message", "since", "event"),
    [
        (
            "notice",
            "Azure takes the machine in 27 s: saving",
            1000.0,
            ("info", "eviction.answered"),
        ),
        ("training", "compiled was not used: this is a CPU", 2000.0, ("warn", "training.warned")),
    ],
)
async def test_what_a_machine_tells_twice_is_one_event(
    world: World, kind: str, message: str, since: float, event: tuple[str, str]
) -> None:
    nodes = await boot_job(world)
    number = await train(world, nodes, step=1)
    for at in (1000.0, since):  # an answer was lost, or the next generation finds the same
        trouble = Trouble(kind=kind, message=message, since=at)
        await nodes[0].say(NodePhase.RUNNING, number, step=1, troubles=(trouble,))

    [row] = await _events(world, nodes[0])
    assert (row["level"], row["code"]) == event
    assert row["message"] == message


async def test_spans_of_a_node_whose_clock_is_off_are_shown_in_our_time(world: World) -> None:
    node = (await boot_job(world))[0]
    off, now = 3 * 3600.0, world.clock().timestamp()
    span = Span(name="start_supervisor", started_at=now + off - 20, ended_at=now + off - 10)
    await _boot_again(world, node, "boot-2", now + off, span)

    spans = [s for s in await _spans(world, node) if s["name"] == span.name]
    assert abs(spans[-1]["ended_at"] - (now - 10)) < 1.0


async def _boot_again(
    world: World, node: ScriptedNode, boot_id: str, now: float, *spans: Span
) -> None:
    """Register the node as another boot, by its own clock."""
    message = registration(node.attempt_id, node.vm_id, boot_id, spans=spans, now=now)
    token = tokens.bootstrap_token(SECRET, node.attempt_id)
    headers = {"authorization": f"Bearer {token}"}
    response = await world.http.post("/internal/nodes", content=message.to_json(), headers=headers)
    assert response.status_code == 200, response.text


async def _spans(world: World, node: ScriptedNode) -> list[dict[str, Any]]:
    """Return what is kept of the node's boots."""
    c = tables.nodes.c
    async with world.engine.connect() as conn:
        query = select(c.spans).where(c.attempt_id == node.attempt_id, c.vm_id == node.vm_id)
        return list((await conn.execute(query)).scalar_one())


async def test_what_a_restarted_supervisor_tells_of_the_boot_again_is_kept_once(
    world: World,
) -> None:
    node = (await boot_job(world))[0]
    start = world.clock().timestamp() - 90
    boot = Span(name="vm_boot", started_at=start, ended_at=start + 30)
    for number, wait in enumerate((0, 600)):
        world.clock.advance(seconds=wait)
        now = world.clock().timestamp()
        started = Span(name="start_supervisor", started_at=now - 2, ended_at=now - 1)
        delay = 0.3 * number  # so much longer it took to come
        await _boot_again(world, node, f"boot-{number + 2}", now - delay, boot, started)

    names = [s["name"] for s in await _spans(world, node)]
    assert names == ["vm_boot", "start_supervisor", "start_supervisor"]


@pytest.mark.long
async def test_what_a_hostile_node_tells_is_kept_up_to_a_limit(world: World) -> None:
    nodes = await boot_job(world)
    number = await train(world, nodes, step=1)
    measurement = replace(metrics(1), step=2**31 - 1)  # beyond the job's last step
    tiny = replace(metrics(2), seconds=5e-324, tokens=2**40)
    for wave in range(3):
        spans = tuple(Span(name="s", started_at=wave, ended_at=n) for n in range(999))
        troubles = tuple(
            Trouble(kind="uploads", message=f"{n}\0", since=wave * 999.0 + n) for n in range(500)
        )
        members = {"spans": spans, "troubles": troubles, "metrics": (tiny, measurement)}
        response = await nodes[0].say(NodePhase.RUNNING, number, step=2, **members)
        assert response.status_code == 200, response.text
    async with world.engine.connect() as conn:
        (row,) = await conn.execute(
            select(tables.nodes.c.spans).where(tables.nodes.c.vm_id == nodes[0].vm_id)
        )
        query = select(func.count()).where(tables.events.c.code == "checkpoint.delayed")
        events = (await conn.execute(query)).scalar_one()
        steps = list((await conn.execute(select(tables.metrics.c.step))).scalars())

    assert len(row.spans) == MOST_SPANS
    assert events == MAX_PER_CODE
    assert sorted(steps) == [1, 2]


async def _events(world: World, node: ScriptedNode) -> list[dict[str, Any]]:
    async with world.engine.connect() as conn:
        c = tables.events.c
        query = select(c.level, c.code, c.message).where(
            c.attempt_id == node.attempt_id,
            c.code.in_(
                (
                    "checkpoint.delayed",
                    "checkpoint.caught_up",
                    "eviction.answered",
                    "training.warned",
                )
            ),
        )
        return [dict(r) for r in (await conn.execute(query.order_by(c.seq))).mappings()]
