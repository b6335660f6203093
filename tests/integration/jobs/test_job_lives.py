"""Whole lives of jobs: the API, the reconcilers and scripted nodes over one real PostgreSQL."""

from datetime import UTC, datetime

import pytest

from service.cloud.provider import CloudError, ScaleSetNotFound
from service.db.attempts import attempts as attempt_rows
from service.domain.cloud.fleet import scale_set_name
from tests.integration.stored_jobs import put_files
from tests.nodes.scripted_node import boot, commit, committed, say_all, start_training, train
from tests.world import World
from trainer.contract import RUN_SPEC, DirectiveKind, NodePhase, RunSpec


async def test_a_run_is_dated_by_the_day_on_which_its_job_was_created(world: World) -> None:
    job = await world.submit()
    await world.tick(2)

    spec, _ = await world.store.read(job["id"], RUN_SPEC)
    created = datetime.fromtimestamp(job["created_at"], UTC)
    assert RunSpec.from_json(spec).date == created.date().isoformat()


async def test_the_machines_of_a_finished_job_are_deleted_and_then_its_cost_is_final(
    world: World,
) -> None:
    job, nodes, number = await start_training(world)
    await commit(world, job, committed(10, number, "final"))
    await say_all(nodes, NodePhase.FINISHED, number, step=10)
    await world.tick(2)
    before = await world.job(job)
    await world.tick(30)

    after = await world.job(job)

    assert not before["cost"]["final"]
    assert after["cost"]["final"]
    assert (await world.attempts_of(job))[0]["state"] == "ended"
    assert await world.cloud.list_owned() == []


async def test_a_cancelled_job_stops_its_nodes_and_a_paused_one_lets_them_save(
    world: World,
) -> None:
    heard = list[DirectiveKind]()
    for verb in ("cancel", "pause"):
        job, nodes, _ = await start_training(world)
        await world.call("POST", f"/v1/fine_tuning/jobs/{job}/{verb}")
        await world.tick(1, seconds=1)
        heard += [(await node.hear()).kind for node in nodes]

    assert heard == [DirectiveKind.STOP] * 2 + [DirectiveKind.CHECKPOINT_AND_STOP] * 2


async def test_a_paused_job_has_no_machines_and_trains_again_once_it_is_resumed(
    world: World,
) -> None:
    job, nodes, number = await start_training(world)
    await world.call("POST", f"/v1/fine_tuning/jobs/{job}/pause")
    await world.tick(1, seconds=1)
    saved = committed(2, number, "stop")
    await put_files(world.store, job, saved.path)
    await commit(world, job, saved)
    await say_all(nodes, NodePhase.STOPPED, number, step=2)
    await world.tick(30)
    paused, left = await world.job(job), await world.cloud.list_owned()
    await world.call("POST", f"/v1/fine_tuning/jobs/{job}/resume")

    await train(world, await boot(world, job), step=3)

    assert (paused["phase"], left) == ("paused", [])
    assert (await world.job(job))["phase"] == "training"


async def test_a_round_that_the_world_skips_would_have_done_nothing(world: World) -> None:
    _, nodes, number = await start_training(world)
    rounds = list[tuple[bool, bool]]()
    for _ in range(60):
        world.clock.advance(seconds=7)
        due = await world.next_due() <= world.clock()
        steps = await world.jobs.run_once() + await world.attempts.run_once()
        rounds.append((due, steps > 0))
        await say_all(nodes, NodePhase.RUNNING, number, step=2)

    assert {(True, True), (False, False)} <= set(rounds)
    assert (False, True) not in rounds


async def test_after_a_noticed_eviction_the_next_attempt_loads_what_was_saved(world: World) -> None:
    job, nodes, first = await start_training(world, step=3)
    await nodes[1].notice(first, step=3)
    await world.tick(1, seconds=1)
    told = [await node.hear() for node in nodes]
    await commit(world, job, committed(4, first, "stop"))
    await say_all(nodes, NodePhase.STOPPED, first, step=4)
    await world.tick(2, seconds=1)
    recovering = await world.job(job)

    again = await boot(world, job)
    second = await train(world, again, step=5)

    assert [d.kind for d in told] == [DirectiveKind.CHECKPOINT_AND_STOP] * 2
    assert recovering["attempts"]["evictions"] == 1
    assert recovering["status"] == "running"
    assert second == first + 1
    last = again[0].last
    assert last is not None
    assert last.generation is not None
    assert last.generation.checkpoint is not None
    assert last.generation.checkpoint.step == 4


async def test_the_next_attempt_starts_while_the_last_one_is_being_torn_down(world: World) -> None:
    job, nodes, number = await start_training(world, step=3)
    await nodes[0].notice(number, step=3)
    await world.tick(1, seconds=1)
    await say_all(nodes, NodePhase.STOPPED, number, step=3)

    await world.tick(4, seconds=1)

    states = [a["state"] for a in await world.attempts_of(job)]
    assert states[0] == "terminating"
    assert states[1] in ("pending", "provisioning")


async def test_when_a_machine_vanishes_the_survivors_are_stopped_at_once(world: World) -> None:
    job, nodes, number = await start_training(world, step=3)
    world.cloud.evict(scale_set_name(nodes[1].attempt_id), "1")
    gone = await _missing(world, nodes[1].attempt_id)
    survivor = next(n for n in nodes if n.vm_id not in gone)
    await world.tick(1)

    directive = await survivor.hear()
    await survivor.say(NodePhase.STOPPED, number, step=3)
    await world.tick(1)

    assert directive.kind is DirectiveKind.STOP
    (attempt,) = await world.attempts_of(job)
    assert attempt["outcome"] == "evicted"
    assert "without notice" in attempt["reason"]


async def test_a_trainer_error_starts_a_new_generation_and_three_fail_the_job(world: World) -> None:
    job = await world.submit()
    nodes = await boot(world, job["id"])
    for _ in range(3):
        number = await train(world, nodes, step=1)
        await say_all(nodes, NodePhase.FAILED, number, error="ValueError: the data is bad")
    await world.tick(3)

    failed = await world.job(job["id"])

    assert failed["status"] == "failed"
    assert failed["error"]["code"] == "trainer_error"
    assert "the data is bad" in failed["error"]["message"]


async def test_a_committed_checkpoint_breaks_a_row_of_trainer_errors(world: World) -> None:
    job = await world.submit()
    nodes = await boot(world, job["id"])
    for step in range(1, 5):
        number = await train(world, nodes, step=step)
        await commit(world, job["id"], committed(step, number))
        await say_all(nodes, NodePhase.FAILED, number, step=step)
    await world.tick(2)

    assert (await world.job(job["id"]))["status"] == "running"


async def test_a_silent_node_makes_its_attempt_unresponsive(world: World) -> None:
    job, nodes, number = await start_training(world)
    for _ in range(30):
        await nodes[0].say(NodePhase.RUNNING, number, step=1)  # the other one is silent
        await world.tick()

    assert (await world.attempts_of(job))[0]["outcome"] == "unresponsive"


async def test_a_cloud_that_does_not_answer_kills_no_healthy_training(world: World) -> None:
    job, nodes, number = await start_training(world)
    for _ in range(5):
        world.cloud.fail_next = [CloudError("Azure does not answer") for _ in range(5)]
        await say_all(nodes, NodePhase.RUNNING, number, step=2)
        await world.tick()

    assert [a["state"] for a in await world.attempts_of(job)] == ["running"]


async def test_the_sweep_deletes_what_no_live_attempt_owns(world: World) -> None:
    job = await world.submit()
    nodes = await boot(world, job["id"])
    async with world.engine.connect() as conn:
        row = await attempt_rows.find(conn, nodes[0].attempt_id)
    assert row is not None
    spec = world.attempts.specs.spec(row)
    await world.cloud.create(type(spec)(**vars(spec) | {"name": "rk-nobodys"}))
    world.clock.advance(minutes=10)

    swept = await world.orphans.run_once()
    world.clock.advance(minutes=10)

    assert swept == ["rk-nobodys"]
    with pytest.raises(ScaleSetNotFound):
        await world.cloud.get("rk-nobodys")
    assert (await world.cloud.get(scale_set_name(row.id))).instances


async def _missing(world: World, attempt_id: str) -> set[str]:
    found = await world.cloud.get(scale_set_name(attempt_id))
    async with world.engine.connect() as conn:
        row = await attempt_rows.find(conn, attempt_id)
    assert row is not None
    return set(row.vm_ids) - {i.vm_id for i in found.instances}


async def test_a_model_that_was_committed_counts_even_if_its_node_never_says_so(
    world: World,
) -> None:
    job, nodes, number = await start_training(world)
    await commit(world, job, committed(10, number, "final"))
    world.cloud.evict(scale_set_name(nodes[0].attempt_id), "0")
    await world.tick(4)

    assert (await world.job(job))["status"] == "succeeded"
    assert len(await world.attempts_of(job)) == 1
