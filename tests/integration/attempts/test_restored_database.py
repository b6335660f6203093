"""A database that was put back to what it was: HEAD in Blob is ahead of it, and jobs go on."""

from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.attempts import generations, nodes
from service.db.attempts.attempts import AttemptRow
from service.db.core.leases import LEASE, Claim
from service.db.schema import tables
from service.domain.cloud.fleet import scale_set_name
from service.domain.errors import LeaseLost
from service.domain.lifecycle.attempt import AttemptView, OpenGeneration
from service.domain.lifecycle.generation import NodeView
from service.domain.lifecycle.node import node_view
from service.operations.attempts import heads
from service.reconciler.attempts.open_generation import GenerationOpener
from tests.integration.db.rows import add_attempt, add_job, add_node, claim_attempt, generation
from tests.nodes.scripted_node import (
    ScriptedNode,
    boot,
    commit,
    committed,
    say_all,
    start_training,
    train,
)
from tests.postgres import EMPTY
from tests.world import World
from trainer.contract import HEAD, DirectiveKind, Head, NodePhase, StaleGeneration

TABLES = [table.name for table in tables.metadata.sorted_tables]


async def back_up(engine: AsyncEngine) -> None:
    """Keep a copy of every row."""
    async with engine.begin() as conn:
        await conn.execute(text("drop schema if exists kept cascade"))
        await conn.execute(text("create schema kept"))
        for name in TABLES:
            await conn.execute(text(f"create table kept.{name} as table public.{name}"))


async def restore(world: World) -> None:
    """Every row as it was then; the reconcilers start anew."""
    async with world.engine.begin() as conn:
        for deletion in EMPTY.split("; "):
            await conn.execute(text(deletion))
        for name in TABLES:
            await conn.execute(text(f"insert into {name} select * from kept.{name}"))
        await conn.execute(text("drop schema kept cascade"))
    world.__post_init__()


async def evict_and_boot(
    world: World, job_id: str, nodes: list[ScriptedNode]
) -> list[ScriptedNode]:
    """Azure takes a machine; those of the next attempt boot."""
    world.cloud.evict(scale_set_name(nodes[0].attempt_id), "0")
    return await boot_again(world, job_id)


async def boot_again(world: World, job_id: str) -> list[ScriptedNode]:
    """Let the attempt before end, then boot the machines of the next one."""
    await world.tick(10)
    return await boot(world, job_id)


async def head_of(world: World, job_id: str) -> Head:
    head, _ = await heads.read(world.store, job_id)
    return head


async def finish(world: World, job_id: str, nodes: list[ScriptedNode], number: int) -> None:
    await commit(world, job_id, committed(100, number, "final"))
    await say_all(nodes, NodePhase.FINISHED, number, step=100)
    await world.tick(30)


@pytest.mark.parametrize(("lives", "commits"), [(1, True), (1, False), (3, True)])
async def test_a_job_goes_on_from_the_newest_commit_and_what_the_database_forgot_is_fenced_out(
    world: World, lives: int, commits: bool
) -> None:
    world.store.now = world.clock
    job_id, machines, generation_number = await start_training(world, step=5)
    await commit(world, job_id, committed(5, generation_number))
    await world.tick()
    await back_up(world.engine)
    number = generation_number
    for attempt_number in range(1, lives + 1):
        machines = await evict_and_boot(world, job_id, machines)
        number = await train(world, machines, step=10 * attempt_number + 1)
        if commits:
            await commit(world, job_id, committed(10 * attempt_number, number))
    world.clock.advance(minutes=5)

    await restore(world)
    new_nodes = await boot_again(world, job_id)
    before = await head_of(world, job_id)
    opened = await train(world, new_nodes, step=90)
    start = new_nodes[0].last

    assert (before.generation, number, opened) == (
        generation_number + lives,
        generation_number + lives,
        generation_number + lives + 1,
    )
    assert start is not None
    assert start.generation is not None
    assert (
        start.generation.checkpoint
        == before.newest
        == committed(10 * lives if commits else 5, number if commits else generation_number)
    )
    with pytest.raises(StaleGeneration):
        await commit(world, job_id, committed(99, number))
    (event,) = await world.events(job_id, "database.behind")
    assert event["data"] == {"known": generation_number, "head": number}
    assert (
        f"it knew generation {generation_number}, but generation {number} had begun"
        in event["message"]
    )
    await finish(world, job_id, new_nodes, opened)
    assert (await world.job(job_id))["status"] == "succeeded"
    assert len(await world.events(job_id, "database.behind")) == 1
    assert len(await world.attempts_of(job_id)) == 2


async def test_machines_that_heard_what_the_database_forgot_hear_what_comes_next(
    world: World,
) -> None:
    world.store.now = world.clock
    job_id, machines, number = await start_training(world, step=5)
    await commit(world, job_id, committed(5, number))
    await back_up(world.engine)
    await machines[0].say(NodePhase.FAILED, number, step=6)
    await world.tick(1, seconds=2)
    lost_directive = await machines[1].hear()

    await restore(world)
    directive = await machines[1].hear()  # it asks all the time
    await say_all(machines, NodePhase.STOPPED, number, step=6)
    await world.tick(3)
    directives = [await machine.hear() for machine in machines]

    assert lost_directive.kind is DirectiveKind.STOP
    assert (directive.kind, directive.number) == (DirectiveKind.START, number)
    assert directive.seq > lost_directive.seq
    assert [(d.kind, d.number) for d in directives] == [(DirectiveKind.START, number + 1)] * 2
    assert directives[1].seq > lost_directive.seq


async def test_a_job_whose_end_the_database_forgot_ends_so_again_and_trains_nothing(
    world: World,
) -> None:
    world.store.now = world.clock
    job_id = (await world.submit())["id"]
    await back_up(world.engine)
    machines = await boot(world, job_id)
    await finish(world, job_id, machines, await train(world, machines, step=5))
    head = await head_of(world, job_id)

    await restore(world)
    await world.tick(40)

    assert (await world.job(job_id))["status"] == "succeeded"
    assert await head_of(world, job_id) == head
    assert world.cloud.billed_names() == set()


async def test_machines_of_attempts_and_jobs_that_the_database_forgot_are_deleted(
    world: World,
) -> None:
    world.store.now = world.clock
    job_id, first, _ = await start_training(world, step=5)
    await back_up(world.engine)
    second = await evict_and_boot(world, job_id, first)
    await train(world, second, step=15)
    other_job = (await world.submit())["id"]
    other_nodes = await boot(world, other_job)

    await restore(world)
    new_nodes = await boot_again(world, job_id)
    directive = await second[0].say(NodePhase.RUNNING, 2, step=16)
    deleted = await world.orphans.run_once()
    world.clock.advance(minutes=5)

    assert set(deleted) == {scale_set_name(nodes[0].attempt_id) for nodes in (second, other_nodes)}
    assert world.cloud.billed_names() == {scale_set_name(new_nodes[0].attempt_id)}
    assert directive.status_code == 404  # so it registers again
    assert (await second[0].register()).status_code == 410  # and leaves
    assert (await world.call("GET", f"/v1/fine_tuning/jobs/{other_job}")).status_code == 404
    assert await world.store.list_blobs(other_job)  # what it had committed stays


async def test_a_number_that_nodes_have_spoken_of_is_never_given_again(world: World) -> None:
    world.store.now = world.clock
    job_id = (await world.submit())["id"]
    machines = await boot(world, job_id)
    await back_up(world.engine)
    lost_number = await train(world, machines, step=5)

    await restore(world)  # a failover, say: the machines are there still
    await say_all(machines, NodePhase.FAILED, lost_number, step=5)
    await world.tick(2)

    async with world.engine.connect() as conn:
        rows = await generations.of_job(conn, job_id)
    assert [row.generation.number for row in rows] == [lost_number + 1]
    assert (await head_of(world, job_id)).generation == lost_number + 1


class Scene:
    """An attempt with one node and a generation, claimed, and HEAD so far ahead."""

    def __init__(self, world: World, claim: Claim, row: AttemptRow, node: NodeView) -> None:
        self._world, self._claim, self._row, self.node = world, claim, row, node

    async def open(self, after: int) -> object:
        """As the worker that holds the claim."""
        world, step = self._world, OpenGeneration(nodes=(self.node,))
        opener = GenerationOpener(engine=world.engine, store=world.store, now=world.clock)
        return await opener.open(self._claim, self._row, step, AttemptView(scale_set=None), after)


async def scene(world: World, rows_ahead: int) -> Scene:
    now = world.clock()
    async with world.engine.begin() as conn:
        await add_job(conn, now, state="running", run_spec_sha256="as pinned")
        await add_attempt(conn, now)
        node = await add_node(conn, now, "vm")
        await generations.begin_all(conn, [generation(1, [node])], (), now)
        claim, row = await claim_attempt(conn, now)
    await world.store.create_container("job")
    head = Head(generation=1 + rows_ahead, checkpoints=(committed(5, 1 + rows_ahead),))
    await world.store.write("job", HEAD, head.to_json().encode())
    return Scene(world, claim, row, node_view(node, present=True))


@pytest.mark.parametrize("rows_ahead", [1, 2])
async def test_a_late_worker_fences_nothing_however_far_head_is_ahead(
    world: World, rows_ahead: int
) -> None:
    late = await scene(world, rows_ahead)
    before = await world.store.read("job", HEAD)
    world.clock.advance(seconds=LEASE.total_seconds() + 1)
    async with world.engine.begin() as conn:
        await claim_attempt(conn, world.clock())

    with pytest.raises(LeaseLost):
        await late.open(after=1)

    assert await world.store.read("job", HEAD) == before


@pytest.mark.parametrize("rows_ahead", [1, 2])
async def test_a_worker_without_the_newest_row_reads_again(world: World, rows_ahead: int) -> None:
    quick = await scene(world, rows_ahead)
    before = await world.store.read("job", HEAD)
    async with world.engine.begin() as conn:
        node = await nodes.find(conn, quick.node.node_id)
        assert node is not None
        newer = replace(generation(1 + rows_ahead, [node]), checkpoint=None)
        await generations.begin_all(conn, [newer], (), world.clock())

    assert await quick.open(after=1) is False
    assert await world.store.read("job", HEAD) == before
