"""Lives of jobs whose machines come late, or not all, or not until a person acts."""

from datetime import timedelta
from typing import Any

from service.db.spot import capacity_outages
from service.domain.cloud.fleet import scale_set_name
from tests.nodes.scripted_node import ScriptedNode, say_all, train
from tests.world import DATASET, SPOT, World
from trainer.contract import NodePhase

EIGHT = {"infrastructure": {"nodes": 8}}
NO_IMAGE = "PlatformImageNotFound"


async def _submit(world: World, body: dict[str, Any]) -> str:
    file = await world.upload(b"\n".join([DATASET] * 100))
    return str((await world.submit(training_file=file, **body))["id"])


async def _running(world: World, job_id: str, count: int) -> dict[str, Any]:
    """Let time pass until so many machines run; returns the attempt."""
    for _ in range(80):
        await world.tick()
        attempts = await world.attempts_of(job_id)
        if attempts and len(await _vms(world, attempts[-1]["id"])) >= count:
            return attempts[-1]
    raise AssertionError(await world.job(job_id))


async def _vms(world: World, attempt_id: str) -> list[str]:
    name = scale_set_name(attempt_id)
    if name not in world.cloud.billed_names():
        return []
    world.cloud.visible_after = timedelta(0)
    return [i.vm_id for i in (await world.cloud.get(name)).instances if i.running]


async def _register(world: World, attempt_id: str) -> list[ScriptedNode]:
    nodes = [ScriptedNode(world, attempt_id, vm_id) for vm_id in await _vms(world, attempt_id)]
    for node in nodes:
        response = await node.register()
        assert response.status_code == 200, response.text
        await node.say(NodePhase.READY)
    return nodes


async def _is_short(world: World) -> bool:
    async with world.engine.connect() as conn:
        return bool(await capacity_outages.open_shortages(conn, [SPOT]))


async def test_seven_of_eight_machines_are_kept_until_the_eighth_comes_late(world: World) -> None:
    world.cloud.stragglers[SPOT], world.cloud.straggler_delay = 1, timedelta(minutes=25)
    job_id = await _submit(world, EIGHT)
    running_before = await _running(world, job_id, 7)
    vm_ids = await _vms(world, running_before["id"])
    await world.tick(60)
    meanwhile = (await world.attempts_of(job_id))[-1]
    running_after = await _running(world, job_id, 8)
    await world.tick()
    nodes = await _register(world, running_after["id"])
    await train(world, nodes, step=1)

    assert (running_before["state"], meanwhile["state"]) == ("provisioning", "provisioning")
    assert set(vm_ids) < {n.vm_id for n in nodes}
    (attempt,) = await world.attempts_of(job_id)
    assert (attempt["state"], len(nodes)) == ("running", 8)


async def test_an_elastic_job_begins_with_seven_machines_once_the_eighth_is_late(
    world: World,
) -> None:
    world.cloud.stragglers[SPOT], world.cloud.straggler_delay = 1, timedelta(minutes=25)
    hyperparameters = {"n_epochs": 50, "batch_size": 168}
    nodes_of_it = {"nodes": 8, "elastic": {"min_nodes": 6}}
    body = {"infrastructure": nodes_of_it, "hyperparameters": hyperparameters}
    job_id = await _submit(world, body)
    attempt = await _running(world, job_id, 7)
    await world.tick()
    nodes = await _register(world, attempt["id"])
    await world.tick(4)  # a minute: the eighth may still come
    generations = (await world.attempts_of(job_id))[-1]["generations"]
    await say_all(nodes, NodePhase.READY)
    await world.tick(5)
    await train(world, nodes, step=1)

    (lived,) = await world.attempts_of(job_id)
    assert (generations, [g["nodes"] for g in lived["generations"]]) == ([], [7])


async def test_a_machine_that_azure_failed_to_make_is_asked_for_again_beside_the_others(
    world: World,
) -> None:
    world.cloud.partial_capacity[SPOT], world.cloud.lists_failed_instances = 7, True
    world.cloud.late_code = "NetworkingInternalOperationError"
    job_id = await _submit(world, EIGHT)
    running_before = await _running(world, job_id, 7)
    vm_ids = await _vms(world, running_before["id"])
    world.cloud.partial_capacity.clear()
    running_after = await _running(world, job_id, 8)
    await world.tick()

    assert set(vm_ids) < set(await _vms(world, running_after["id"]))
    (attempt,) = await world.attempts_of(job_id)
    assert attempt["state"] == "starting"
    assert (await world.event_codes(job_id)).count("node.replacement_asked") == 1
    assert not await _is_short(world)


async def test_azures_own_fault_is_no_shortage_and_is_tried_again_after_a_growing_pause(
    world: World,
) -> None:
    world.cloud.sold_out_late.add(SPOT)
    world.cloud.late_code = "OSProvisioningTimedOut"
    world.cloud.late_message = "did not finish in the allotted time"
    job_id = await _submit(world, EIGHT)
    for _ in range(30):
        await world.tick(seconds=60)
    attempts = await world.attempts_of(job_id)
    job = await world.job(job_id)

    assert {a["outcome"] for a in attempts} <= {"provisioning_failed", None}
    assert 3 < len(attempts) < 8
    assert job["status"] == "queued"
    assert not await _is_short(world)


async def test_a_misconfiguration_fails_a_job_that_never_trained_and_says_what_to_do(
    world: World,
) -> None:
    world.cloud.sold_out_late.add(SPOT)
    world.cloud.late_code, world.cloud.late_message = NO_IMAGE, "The image is not there."
    job_id = await _submit(world, EIGHT)
    await world.tick(20)
    job = await world.job(job_id)
    (attempt,) = await world.attempts_of(job_id)

    assert (job["status"], job["error"]["code"]) == ("failed", "misconfigured")
    assert "REKINDLE_AZURE_IMAGE" in job["error"]["message"]
    assert attempt["outcome"] == "misconfigured"
    assert not await _is_short(world)
