"""Lives of jobs that get machines with broken GPUs: each is named, deleted and replaced."""

import json
from dataclasses import replace

from contract.choices import Engine
from service.db.attempts import attempts
from service.db.attempts.attempts import AttemptRow
from service.domain.cloud.fleet import scale_set_name
from service.domain.lifecycle.unhealthy_nodes import MAX_UNHEALTHY
from service.reconciler.attempts.scale_sets import SpecMaker
from tests.nodes.scripted_node import ScriptedNode, boot, say_all, start_training, train
from tests.world import World
from trainer.contract import NodePhase

WHY = "GPU 3 (00000001:00:00.0): a row of its memory could not be remapped"


async def boot_newcomer(
    world: World, nodes: list[ScriptedNode], phase: NodePhase = NodePhase.READY, number: int = 0
) -> ScriptedNode:
    """Return the first machine to come in place of unhealthy ones; the others still wait."""
    name = scale_set_name(nodes[0].attempt_id)
    vm_ids = {i.vm_id for i in (await world.cloud.get(name)).instances}
    new_vm_ids: set[str] = set()
    for _ in range(40):
        await world.tick()
        await say_all(nodes, phase, number)
        if new_vm_ids := {i.vm_id for i in (await world.cloud.get(name)).instances} - vm_ids:
            break
    await world.tick()  # it is seen
    node = ScriptedNode(world, nodes[0].attempt_id, min(new_vm_ids))
    assert (await node.register()).status_code == 200
    return node


async def test_gpu_nodes_receive_the_hardware_of_their_size(world: World) -> None:
    job = str((await world.submit())["id"])
    await world.tick(2)
    async with world.engine.connect() as conn:
        row = await attempts.find(conn, (await world.attempts_of(job))[-1]["id"])
    assert row is not None
    offering = replace(row.offering, vm_size="Standard_ND96isr_H100_v5")
    row = replace(row, offering=offering, instance_count=2)
    in_azureml = replace(row, offering=replace(offering, engine=Engine.AZUREML))
    specs = replace(world.attempts.specs, accelerator="cuda")
    hardware_of_four = '"gpus":8,"infiniband_gbps":400,"nvlink_gbytes":460'
    hardware = '"gpus":8,"infiniband_gbps":0,"nvlink_gbytes":460'

    assert hardware_of_four in node_configuration(specs, row)
    assert hardware in node_configuration(specs, replace(row, instance_count=1))
    assert '"hardware":null' in node_configuration(world.attempts.specs, row)
    assert '"vm_size":""' in node_configuration(specs, row)  # the metadata service says it there
    assert '"vm_size":"Standard_ND96isr_H100_v5"' in node_configuration(specs, in_azureml)


def node_configuration(specs: SpecMaker, row: AttemptRow) -> str:
    """Return the node's configuration."""
    text = specs.spec(row).cloud_init.partition("\n")[2]
    return str(json.loads(text)["write_files"][0]["content"])


async def events(world: World, job_id: str, code: str) -> list[str]:
    """Return the sentences of the events with this code, oldest first."""
    return [e["message"] for e in await world.events(job_id, code)]


async def test_an_unhealthy_machine_is_replaced_by_name_and_the_job_trains(world: World) -> None:
    job = str((await world.submit())["id"])
    good_node, bad_node = await boot(world, job)
    for _ in range(2):  # it says so with every heartbeat
        assert (await bad_node.say(NodePhase.READY, unhealthy=WHY)).status_code == 200
    await world.tick(2)
    name = scale_set_name(good_node.attempt_id)
    vm_ids = {i.vm_id for i in (await world.cloud.get(name)).instances}
    new_node = await boot_newcomer(world, [good_node])
    await new_node.say(NodePhase.READY)
    await train(world, [good_node, new_node], step=3)

    assert vm_ids == {good_node.vm_id}
    assert await events(world, job, "node.unhealthy") == [
        f"Instance {bad_node.vm_id} of attempt 1 is unhealthy and is deleted: {WHY}"
    ]
    assert await events(world, job, "node.useless") == []
    (attempt,) = await world.attempts_of(job)
    assert attempt["state"] == "running"
    assert attempt["evicted"] == {"noticed": 0, "unnoticed": 0}


async def test_a_gpu_that_breaks_in_training_costs_a_machine_and_counts_as_no_trainer_error(
    world: World,
) -> None:
    job, (good_node, bad_node), number = await start_training(world, step=3)
    await bad_node.say(NodePhase.FAILED, number, step=3, error="CUDA error", unhealthy=WHY)
    await world.tick()
    await good_node.hear()
    await good_node.say(NodePhase.FAILED, number, step=3, error="a peer is gone")
    await world.tick(2)
    new_node = await boot_newcomer(world, [good_node], NodePhase.FAILED, number)
    await new_node.say(NodePhase.READY)
    await train(world, [good_node, new_node], step=4)

    (attempt,) = await world.attempts_of(job)
    assert (attempt["state"], attempt["outcome"]) == ("running", None)
    assert attempt["evicted"] == {"noticed": 0, "unnoticed": 0}
    assert await events(world, job, "node.evicted") == []


async def test_the_third_unhealthy_machine_ends_the_attempt_and_another_one_is_begun(
    world: World,
) -> None:
    job = str((await world.submit())["id"])
    good_node, bad_node = await boot(world, job)
    for count in range(1, MAX_UNHEALTHY + 1):
        await bad_node.say(NodePhase.READY, unhealthy=WHY)
        await world.tick(2)
        if count < MAX_UNHEALTHY:
            bad_node = await boot_newcomer(world, [good_node])
    first, *_ = await world.attempts_of(job)
    new_nodes = await boot(world, job)
    await train(world, new_nodes, step=1)

    assert first["outcome"] == "unresponsive"
    assert first["reason"] == "3 unhealthy machines in one attempt."
    assert len(await events(world, job, "node.unhealthy")) == MAX_UNHEALTHY
    assert (await world.job(job))["status"] == "running"
