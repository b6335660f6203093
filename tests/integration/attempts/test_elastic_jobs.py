"""Lives of elastic jobs: they lose machines and go on, and take in what comes in their place."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from service.cloud.provider import Misconfigured
from service.db.attempts import machine_history
from service.db.money import ledger
from service.domain.cloud.fleet import scale_set_name
from tests.nodes.scripted_node import ScriptedNode, boot, commit, committed, metrics, say_all, train
from tests.world import DATASET, PRICE, SPOT, World
from trainer.contract import DirectiveKind, NodePhase, Span

ELASTIC = {
    "infrastructure": {"nodes": 3, "elastic": {"min_nodes": 2}},
    "method": {
        "type": "supervised",
        "supervised": {"hyperparameters": {"n_epochs": 50, "batch_size": 12}},
    },
}


async def start_elastic_job(world: World, **fields: Any) -> tuple[str, list[ScriptedNode], int]:  # noqa: ANN401
    """Return an elastic job on three machines that has done three steps of some hours."""
    file = await world.upload(b"\n".join([DATASET] * 100))
    job = await world.submit(**(ELASTIC | {"training_file": file} | fields))
    nodes = await boot(world, job["id"])
    number = await train(world, nodes, step=3)
    return job["id"], nodes, number


async def _lose_machine(world: World, nodes: list[ScriptedNode], number: int) -> list[ScriptedNode]:
    """Azure takes the last machine unannounced; the others stop, as they are told."""
    name = scale_set_name(nodes[0].attempt_id)
    before = {i.vm_id: i.instance_id for i in (await world.cloud.get(name)).instances}
    *survivors, evicted = nodes
    world.cloud.evict(name, before[evicted.vm_id])
    await world.tick(1)
    for node in survivors:
        assert (await node.hear()).kind is DirectiveKind.STOP
        await node.say(NodePhase.STOPPED, number, step=3)
    return survivors


async def shrink(world: World, nodes: list[ScriptedNode], number: int) -> int:
    """Evict a machine, let the survivors train, and return the number of their generation."""
    survivors = await _lose_machine(world, nodes, number)
    return await train(world, survivors, step=4)


async def _boot_newcomer(world: World, nodes: list[ScriptedNode], generation: int) -> ScriptedNode:
    """Return the machine that Azure gives in place of the lost one, once it has registered."""
    vm_ids = {n.vm_id for n in nodes}
    name = scale_set_name(nodes[0].attempt_id)
    new_vm_ids: set[str] = set()
    for _ in range(40):
        await say_all(nodes[:2], NodePhase.RUNNING, generation, step=4)
        await world.tick()
        if new_vm_ids := {i.vm_id for i in (await world.cloud.get(name)).instances} - vm_ids:
            break
    await world.tick()  # it is seen
    (vm_id,) = new_vm_ids
    node = ScriptedNode(world, nodes[0].attempt_id, vm_id)
    assert (await node.register()).status_code == 200
    await node.say(NodePhase.READY)
    return node


async def _events(world: World, job_id: str) -> list[tuple[str, str]]:
    return [(e["code"], e["message"]) for e in await world.events(job_id)]


async def test_survivors_of_an_eviction_go_on_in_place_from_the_newest_checkpoint(
    world: World,
) -> None:
    job_id, nodes, number = await start_elastic_job(world)
    await commit(world, job_id, committed(2, number))
    survivors = await _lose_machine(world, nodes, number)
    after = await train(world, survivors, step=4)
    async with world.engine.connect() as conn:
        holds = (await machine_history.holds_by_offering(conn, [SPOT], world.clock()))[SPOT]

    row = survivors[0].last.generation if survivors[0].last else None
    assert row is not None
    assert [m.vm_id for m in row.members] == sorted(n.vm_id for n in survivors)
    assert row.checkpoint is not None
    assert (row.checkpoint.step, after) == (2, number + 1)
    (attempt,) = await world.attempts_of(job_id)
    assert (attempt["state"], attempt["outcome"]) == ("running", None)
    assert attempt["evicted"] == {"noticed": 0, "unnoticed": 1}
    assert [g["nodes"] for g in attempt["generations"]] == [3, 2]
    job = await world.job(job_id)
    assert job["attempts"]["evictions"] == 1
    assert job["status_reason"]["message"].startswith("Training on 2 of 3 machines")
    events = await _events(world, job_id)
    assert ("generation.opened", "Going on with 2 of 3 nodes from step 2 (generation 2)") in events
    assert ("node.evicted", "Azure evicted 1 of 3 machines without notice") in events
    assert sum(holds.holds.ends) == 1
    assert holds.evicted_s is not None
    assert holds.evicted_s < 120


async def test_after_a_notice_all_save_and_the_survivors_do_not_wait_for_the_machine_to_go(
    world: World,
) -> None:
    job_id, nodes, number = await start_elastic_job(world)
    await nodes[2].notice(number, step=3)
    await world.tick(1, seconds=1)
    kinds = [(await node.hear()).kind for node in nodes]
    await commit(world, job_id, committed(4, number, "stop"))
    await say_all(nodes, NodePhase.STOPPED, number, step=4)
    await train(world, nodes[:2], step=5)

    assert kinds == [DirectiveKind.CHECKPOINT_AND_STOP] * 3
    (attempt,) = await world.attempts_of(job_id)
    assert (attempt["state"], attempt["lost_steps"]) == ("running", 0)
    assert attempt["evicted"] == {"noticed": 1, "unnoticed": 0}


async def test_a_machine_that_comes_in_place_of_the_lost_one_joins_at_a_checkpoint(
    world: World,
) -> None:
    job_id, nodes, number = await start_elastic_job(world)
    number = await shrink(world, nodes, number)
    newcomer = await _boot_newcomer(world, nodes, number)
    await world.tick(1, seconds=1)
    for node in nodes[:2]:
        assert (await node.hear()).kind is DirectiveKind.CHECKPOINT_AND_STOP
        await node.say(NodePhase.STOPPED, number, step=6)
    await commit(world, job_id, committed(6, number, "stop"))
    grown = await train(world, [*nodes[:2], newcomer], step=7)
    await shrink(world, [*nodes[:2], newcomer], grown)

    (attempt,) = await world.attempts_of(job_id)
    assert [g["nodes"] for g in attempt["generations"]] == [3, 2, 3, 2]
    assert attempt["evicted"] == {"noticed": 0, "unnoticed": 2}
    events = await _events(world, job_id)
    assert (
        "generation.opened",
        f"The 3rd node joins: going on with 3 of 3 nodes from step 6 (generation {grown})",
    ) in events
    messages = [m for code, m in events if code == "node.replacement_asked"]
    assert messages == ["Requested 1 machine to replace evicted ones"] * 2


async def test_a_machine_lost_long_after_another_was_replaced_uses_up_no_budget(
    world: World,
) -> None:
    limits = {"nodes": 3, "elastic": {"min_nodes": 2}, "budget": {"amount": "700"}}
    # This costs 608 dollars a day.
    job_id, nodes, number = await start_elastic_job(world, infrastructure=limits)
    number = await shrink(world, nodes, number)
    await _boot_newcomer(world, nodes, number)
    world.clock.advance(hours=24)
    await say_all(nodes[:2], NodePhase.RUNNING, number, step=4)
    await world.tick(1, seconds=1)
    name = scale_set_name(nodes[1].attempt_id)
    (instance,) = [i for i in (await world.cloud.get(name)).instances if i.vm_id == nodes[1].vm_id]
    world.cloud.evict(name, instance.instance_id)
    await world.tick(1)

    job = await world.job(job_id)
    codes = [code for code, _ in await _events(world, job_id)]
    assert codes[-1] == "generation.halted"
    assert 600 < Decimal(job["cost"]["spent"]) < 620
    assert not {"job.budget_exhausted", "job.budget_passed"} & set(codes)


async def test_a_job_that_is_about_to_end_is_not_stopped_for_a_machine_that_joins(
    world: World,
) -> None:
    job_id, nodes, number = await start_elastic_job(world)
    number = await shrink(world, nodes, number)
    newcomer = await _boot_newcomer(world, nodes, number)
    start = world.clock().timestamp()
    loaded = Span(name="first_step", started_at=start, ended_at=start + 600)
    last = (await world.job(job_id))["progress"]["total_steps"] - 2
    await nodes[0].say(
        NodePhase.RUNNING, number, step=last, metrics=(metrics(last),), spans=(loaded,)
    )
    await newcomer.say(NodePhase.READY)
    await world.tick(2)
    nodes[0].directive_seq = 0  # as one that has just come back asks: it is told at once
    directive = await nodes[0].hear()

    assert (directive.kind, directive.number) == (DirectiveKind.START, number)
    assert (await world.job(job_id))["phase"] == "training"


@pytest.mark.parametrize("late", [False, True], ids=["at once", "after acceptance"])
async def test_a_refusal_and_a_missing_role_do_not_disturb_survivors(
    world: World, late: bool
) -> None:
    job_id, nodes, number = await start_elastic_job(world)
    (world.cloud.sold_out_late if late else world.cloud.sold_out).add(SPOT)
    number = await shrink(world, nodes, number)
    for _ in range(10):
        await say_all(nodes[:2], NodePhase.RUNNING, number, step=5)
        await world.tick(seconds=45)
    world.cloud.fail_next = [Misconfigured("no role")]
    await say_all(nodes[:2], NodePhase.RUNNING, number, step=6)
    await world.tick(1)

    (attempt,) = await world.attempts_of(job_id)
    assert attempt["state"] == "running"
    events = await _events(world, job_id)
    (reason,) = [message for code, message in events if code == "node.no_replacement"]
    assert ("no capacity left" if late else "SkuNotAvailable") in reason
    assert [code for code, _ in events].count("node.replacement_asked") == 1


async def test_a_machine_that_never_joins_is_given_back_and_said_to_be(world: World) -> None:
    job_id, nodes, number = await start_elastic_job(world)
    number = await shrink(world, nodes, number)
    name = scale_set_name(nodes[0].attempt_id)
    vm_ids: set[str] = {n.vm_id for n in nodes}
    for _ in range(95):  # three quarters of an hour
        await say_all(nodes[:2], NodePhase.RUNNING, number, step=4)
        await world.tick(seconds=28)
        vm_ids |= {i.vm_id for i in (await world.cloud.get(name)).instances}

    assert len(vm_ids) == 5  # one that never joins, and one in its place
    assert [code for code, _ in await _events(world, job_id)].count("node.useless") == 1


async def test_each_machine_is_billed_from_its_own_order_and_the_forecast_follows_their_number(
    world: World,
) -> None:
    job_id, nodes, number = await start_elastic_job(world)
    number = await shrink(world, nodes, number)
    await say_all(nodes[:2], NodePhase.RUNNING, number, step=5, metrics=(metrics(5),))
    before = await world.job(job_id)
    started = world.clock()
    await _boot_newcomer(world, nodes, number)
    async with world.engine.connect() as conn:
        rows = await ledger.of_job(conn, job_id)

    assert len(rows) == 4
    assert sum(r.ended_at is None for r in rows) == 3
    assert rows[-1].started_at >= started - timedelta(minutes=1)
    steps_left = before["progress"]["total_steps"] - 5
    pace = before["progress"]["seconds_per_step"]
    costs = {k: Decimal(before["cost"][k]) for k in ("forecast_total", "spent")}
    remaining_cost = costs["forecast_total"] - costs["spent"]
    undisturbed = Decimal(str(steps_left * pace)) * 2 * PRICE.hourly / 3600
    assert undisturbed < remaining_cost < undisturbed * Decimal("1.1")  # a few evictions more


async def test_a_job_shows_on_how_many_nodes_it_may_train(world: World) -> None:
    job, rigid = await world.submit(**ELASTIC), await world.submit()
    narrow = await world.submit(
        infrastructure={"nodes": 4, "elastic": {"min_nodes": 3}},
        hyperparameters={"batch_size": 8},
        training={"micro_batch": 1},
    )

    assert job["elastic"] == job["plan"]["elastic"] == {"min_nodes": 2, "node_counts": [2, 3]}
    assert rigid["elastic"] is None
    assert narrow["elastic"] == {"min_nodes": 3, "node_counts": [3, 4]}
