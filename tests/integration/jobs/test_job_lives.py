"""Whole lives of jobs: the API, the reconcilers and scripted nodes over one real PostgreSQL."""

from datetime import UTC, datetime

import pytest

from service.cloud.provider import CloudError, ScaleSetNotFound
from service.db.attempts import attempts as attempt_rows
from service.domain.cloud.fleet import scale_set_name
from tests.nodes.scripted_node import boot, commit, committed, say_all, start_training, train
from tests.world import World
from trainer.contract import RUN_SPEC, DirectiveKind, NodePhase, RunSpec


async def test_a_run_is_dated_by_the_day_on_which_its_job_was_created(world: World) -> None:
    job = await world.submit()
    await world.tick(2)

    spec, _ = await world.store.read(job["id"], RUN_SPEC)
    created = datetime.fromtimestamp(job["created_at"], UTC)
    assert RunSpec.from_json(spec).date == created.date().isoformat()


async def test_a_round_that_the_world_skips_would_have_done_nothing(world: World) -> None:
    _, nodes, number = await start_training(world)
    rounds = list[tuple[bool, bool]]()
    for _ in range(60):
        world.clock.advance(seconds=7)
        is_due = await world.next_due() <= world.clock()
        steps = await world.jobs.run_once() + await world.attempts.run_once()
        rounds.append((is_due, steps > 0))
        await say_all(nodes, NodePhase.RUNNING, number, step=2)

    assert {(True, True), (False, False)} <= set(rounds)
    assert (False, True) not in rounds


async def test_when_a_machine_vanishes_the_survivors_are_stopped_at_once(world: World) -> None:
    job, nodes, number = await start_training(world, step=3)
    world.cloud.evict(scale_set_name(nodes[1].attempt_id), "1")
    survivor, _ = nodes  # in the order of their instances
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


async def test_new_checkpoints_break_a_row_of_failed_starts(world: World) -> None:
    job, nodes, number = await start_training(world)
    for step in range(2, 6):
        await commit(world, job, committed(step, number))
        await say_all(nodes, NodePhase.FAILED, number, step=step)
        number = await train(world, nodes, step=step)

    assert number == 5


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


async def test_the_sweep_deletes_what_no_live_attempt_owns(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    job = await world.submit()
    nodes = await boot(world, job["id"])
    async with world.engine.connect() as conn:
        row = await attempt_rows.find(conn, nodes[0].attempt_id)
    assert row is not None
    spec = world.attempts.specs.spec(row)
    await world.cloud.create(type(spec)(**vars(spec) | {"name": "rk-nobodys"}))
    world.clock.advance(minutes=10)

    deleted = await world.orphans.run_once()
    for _ in range(40):
        world.clock.advance(minutes=1)
        await world.orphans.run_once()

    assert deleted == ["rk-nobodys"]
    assert "leak.will_not_die" not in caplog.messages
    with pytest.raises(ScaleSetNotFound):
        await world.cloud.get("rk-nobodys")
    assert (await world.cloud.get(scale_set_name(row.id))).instances


async def test_a_model_that_was_committed_counts_even_if_its_node_never_says_so(
    world: World,
) -> None:
    job, nodes, number = await start_training(world)
    await commit(world, job, committed(10, number, "final"))
    world.cloud.evict(scale_set_name(nodes[0].attempt_id), "0")
    await world.tick(4)

    assert (await world.job(job))["status"] == "succeeded"
    assert len(await world.attempts_of(job)) == 1
