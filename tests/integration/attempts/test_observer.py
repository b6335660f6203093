"""What a look writes down, and what it leaves alone when the cloud does not answer."""

import pytest

from service.cloud.provider import CloudError
from service.db.money import ledger
from service.domain.cloud.fleet import Instance, scale_set_name
from tests.nodes.scripted_node import boot, start_training
from tests.world import World


async def _open_cost_rows(world: World, job_id: str) -> int:
    async with world.engine.connect() as conn:
        return sum(r.ended_at is None for r in await ledger.of_job(conn, job_id))


async def test_a_machine_that_lingers_stopped_is_billed_though_the_cloud_falls_silent(
    world: World,
) -> None:
    job, nodes, _ = await start_training(world)
    world.cloud.evict(scale_set_name(nodes[0].attempt_id), "1", lingers=True)
    await world.tick()
    before = await _open_cost_rows(world, job)
    world.cloud.fail_next = [CloudError("Azure does not answer")]
    await world.tick()

    assert (before, await _open_cost_rows(world, job)) == (2, 2)
    async with world.engine.connect() as conn:
        assert len(await ledger.of_job(conn, job)) == 2


async def test_an_instance_without_a_vm_id_is_not_billed_as_a_machine_of_its_own(
    world: World,
) -> None:
    job = await world.submit()
    nodes = await boot(world, job["id"])
    instances = world.cloud._entries[scale_set_name(nodes[0].attempt_id)].instances
    instances["2"] = Instance(instance_id="2", vm_id="", name="")
    await world.tick()

    async with world.engine.connect() as conn:
        rows = await ledger.of_job(conn, job["id"])
    assert {r.vm_id for r in rows} == {n.vm_id for n in nodes}


@pytest.mark.parametrize("answers", [True, False])
async def test_machines_that_cannot_be_deleted_are_reported_once(
    world: World, caplog: pytest.LogCaptureFixture, answers: bool
) -> None:
    job = await world.submit()
    await boot(world, job["id"])
    world.cloud.failing_deletes = 1000
    await world.call("POST", f"/v1/fine_tuning/jobs/{job['id']}/cancel")
    await world.tick(2)
    if not answers:
        world.cloud.fail_next = [CloudError("no route") for _ in range(200)]
    await world.tick(90)

    (alarm,) = await world.events(job["id"], "attempt.will_not_die")
    assert alarm["level"] == "error"
    assert ("costs money" if answers else "(Azure does not answer)") in alarm["message"]
    assert caplog.messages.count("attempt.will_not_die") == 1
