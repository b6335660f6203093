"""Machines that register at a time, and supervisors that register again on an empty disk."""

import asyncio
from datetime import timedelta

import httpx
import pytest
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.attempts import attempts, nodes
from service.db.jobs import events
from service.db.schema import tables
from service.domain.errors import Gone
from service.operations.nodes.nodes import Standing
from service.operations.nodes.registrations import RegistrationBatcher
from tests.clock import Clock
from tests.integration.db.rows import add_attempt, add_job, registration
from tests.nodes.scripted_node import ScriptedNode, boot, commit, committed, start_training, train
from tests.world import World
from trainer.contract import DirectiveKind, NodePhase, Registration, Span, StaleGeneration


def machine(attempt_id: str, vm_id: str, boot_id: str = "boot-1") -> Registration:
    """One that registers."""
    size, network = "Standard_ND96isr_H100_v5", ("NCCL_IB_HCA=mlx5_ib",)
    spans = (Span(name="boot", started_at=1.0, ended_at=2.0),)
    return registration(attempt_id, vm_id, boot_id, vm_size=size, network=network, spans=spans)


Answers = list[Standing | BaseException | None]


async def register_together(engine: AsyncEngine, clock: Clock, *machines: Registration) -> Answers:
    """Register the machines at the same moment, and return the answers."""
    batcher = RegistrationBatcher(engine)
    registering = (batcher.register(standing, clock()) for standing in machines)
    return await asyncio.gather(*registering, return_exceptions=True)


@pytest.fixture
async def _three(engine: AsyncEngine, clock: Clock) -> None:
    """Three attempts with two machines each; the third is over."""
    values = {"vm_ids": ["vm-a", "vm-b"], "due_at": clock() + timedelta(minutes=5)}
    async with engine.begin() as conn:
        for n in (1, 2, 3):
            await add_job(conn, clock(), id=f"job-{n}", state="running")
            await add_attempt(conn, clock(), id=f"att-{n}", job_id=f"job-{n}", **values)
        is_third = update(tables.attempts).where(tables.attempts.c.id == "att-3")
        await conn.execute(is_third.values(state="terminating", outcome="evicted"))


@pytest.mark.usefixtures("_three")
async def test_machines_that_register_together_become_nodes_with_an_event_each(
    engine: AsyncEngine, clock: Clock
) -> None:
    registrations = (machine("att-1", "vm-a"), machine("att-1", "vm-b"), machine("att-2", "vm-a"))

    standings = [
        standing
        for standing in await register_together(engine, clock, *registrations)
        if isinstance(standing, Standing)
    ]

    assert [(s.node.vm_id, s.node.epoch, s.job.id) for s in standings] == [
        ("vm-a", 1, "job-1"),
        ("vm-b", 1, "job-1"),
        ("vm-a", 1, "job-2"),
    ]
    async with engine.connect() as conn:
        assert await registration_messages(engine) == ["Node vm-a registered"] * 2 + [
            "Node vm-b registered"
        ]
        spans = [await nodes.spans(conn, s.node.node_id) for s in standings]
        rows = await events.newest(conn, "job-2", after=None, limit=1)
    assert [[s.name for s in group] for group in spans] == [["boot"]] * 3
    assert rows is not None
    assert rows[0].data == {
        "vm_size": "Standard_ND96isr_H100_v5",
        "network": ["NCCL_IB_HCA=mlx5_ib"],
    }


@pytest.mark.usefixtures("_three")
async def test_known_and_new_machines_of_a_batch_get_their_own_answers(
    engine: AsyncEngine, clock: Clock
) -> None:
    await register_together(engine, clock, machine("att-1", "vm-a"))

    same, repeated, new, unseen_vm, ended_attempt, unknown = await register_together(
        engine,
        clock,
        machine("att-1", "vm-a"),
        machine("att-1", "vm-a", "boot-2"),
        machine("att-2", "vm-a"),
        machine("att-2", "vm-c"),
        machine("att-3", "vm-a"),
        machine("att-none", "vm-a"),
    )

    standing = [
        result.node.epoch for result in (same, repeated, new) if isinstance(result, Standing)
    ]
    assert standing == [1, 2, 1]
    assert unseen_vm is None
    assert (type(ended_attempt), type(unknown)) == (Gone, Gone)
    assert await registration_messages(engine) == [
        "Node vm-a registered",
        "Node vm-a registered",
        "Node vm-a registered again (its supervisor restarted)",
    ]
    async with engine.begin() as conn:
        due_ids = {claim.row_id for claim, _ in await attempts.claim_due(conn, clock(), 10)}
    assert due_ids == {"att-1", "att-2"}, "a new boot, and a machine that was not seen"


async def registration_messages(engine: AsyncEngine) -> list[str]:
    """Return the messages of all registrations of nodes."""
    e = tables.events.c
    async with engine.connect() as conn:
        messages = await conn.execute(select(e.message).where(e.code == "node.registered"))
        return sorted(messages.scalars())


async def second_start(first: ScriptedNode) -> ScriptedNode:
    """Register the same machine again, on an empty disk."""
    second = ScriptedNode(first.world, first.attempt_id, first.vm_id, boot_id="boot-2")
    assert (await second.register()).status_code == 200
    return second


def refusal(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


async def test_a_restarted_supervisor_gets_no_start_of_a_running_generation(world: World) -> None:
    nodes = await boot(world, (await world.submit())["id"])
    number = await train(world, nodes, step=1)
    second = await second_start(nodes[0])
    directive = await second.hear()

    assert second.seat is not None
    assert (second.seat.epoch, directive.kind, directive.number) == (2, DirectiveKind.STOP, number)


async def test_what_the_first_one_saved_cannot_be_committed_once_the_second_one_trains(
    world: World,
) -> None:
    job, nodes, number = await start_training(world)
    await commit(world, job, committed(1, number))
    second = await second_start(nodes[0])
    await second.say(NodePhase.STOPPED, number)
    await world.tick()
    await nodes[1].say(NodePhase.STOPPED, number)
    later_number = await train(world, [second, nodes[1]], step=2)

    assert later_number == number + 1
    with pytest.raises(StaleGeneration):
        await commit(world, job, committed(3, number))
    await commit(world, job, committed(3, later_number))


async def test_only_the_supervisor_that_registered_last_gets_a_start(world: World) -> None:
    nodes = await boot(world, (await world.submit())["id"])
    first, second = nodes[0], await second_start(nodes[0])
    await second.say(NodePhase.READY)
    await world.tick()

    assert (await second.hear()).kind is DirectiveKind.START
    assert refusal(await first.ask()) == (409, "stale_epoch")
    stale = await first.say(NodePhase.READY)
    assert refusal(stale) == (409, "stale_epoch")
    assert stale.headers["x-should-retry"] == "false"
    assert (await second.say(NodePhase.READY)).status_code == 200
