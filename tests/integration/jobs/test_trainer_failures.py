"""Errors of the trainer that no retry can fix, and jobs that have trained on nothing."""

import math
from dataclasses import replace

import pytest

from tests.nodes.scripted_node import (
    ScriptedNode,
    boot,
    commit,
    committed,
    metrics,
    say_all,
    start_training,
)
from tests.world import World
from trainer.contract import NOT_THE_MODEL, NodePhase

ERRORS = {
    "train.jsonl, line 17: the chat template takes no tools. Mend the row": "trainer_error",
    f"{NOT_THE_MODEL}: the exported files are not the model that was trained: 2 missing keys": (
        "verification_failed"
    ),
}


@pytest.mark.parametrize(("error", "code"), ERRORS.items())
async def test_an_error_that_no_retry_can_fix_fails_the_job_at_once_with_its_message(
    world: World, caplog: pytest.LogCaptureFixture, error: str, code: str
) -> None:
    job, nodes, number = await start_training(world, step=3)
    await nodes[0].say(NodePhase.FAILED, number, step=3, error=error, non_retryable=True)
    await nodes[1].say(NodePhase.FAILED, number, step=3, error="a peer is gone")
    await world.tick(3)
    failed = await world.job(job)

    assert failed["status"] == "failed"
    assert failed["error"] == {"code": code, "message": error, "param": None}
    (line,) = [vars(r) for r in caplog.records if r.getMessage() == "job.failed"]
    logged = (line["levelname"], line["job"], line["code"], line["cause"])
    assert logged == ("WARNING", job, code, error)  # a user's matter, no operator's


async def test_a_job_that_has_trained_on_nothing_never_succeeds(world: World) -> None:
    """Whatever the nodes say."""
    job = str((await world.submit())["id"])
    nodes = await boot(world, job)
    number = await start(world, nodes)
    measurement = replace(metrics(1), tokens=0)
    await nodes[0].say(NodePhase.RUNNING, number, step=1, metrics=(measurement,))
    await commit(world, job, committed(1, number, kind="final"))
    await say_all(nodes, NodePhase.FINISHED, number, step=1)
    await world.tick(5)
    failed = await world.job(job)

    assert failed["status"] == "failed"
    assert failed["error"]["code"] == "trainer_error"
    assert "without one trained token (trained_tokens is 0)" in failed["error"]["message"]
    assert failed["fine_tuned_model"] is None
    assert failed["result_files"] == []


async def test_a_step_without_targets_is_null_wherever_it_is_shown(world: World) -> None:
    job = str((await world.submit())["id"])
    nodes = await boot(world, job)
    number = await start(world, nodes)
    empty = replace(metrics(1), loss=math.nan, accuracy=math.nan, valid_loss=math.nan, tokens=0)
    measurements = (empty, replace(metrics(2), valid_loss=None))
    await nodes[0].say(NodePhase.RUNNING, number, step=2, metrics=measurements)
    metrics_page = (await world.call("GET", f"/v1/fine_tuning/jobs/{job}/metrics")).json()
    await commit(world, job, committed(2, number, kind="final"))
    await nodes[0].say(NodePhase.FINISHED, number, step=2)
    await world.tick(5)
    finished = await world.job(job)

    first, second = metrics_page["data"]
    assert (first["loss"], first["accuracy"], first["valid_loss"]) == (None, None, None)
    assert second["loss"] == 2.0
    assert finished["status"] == "succeeded"
    file = await world.call(
        "GET", f"/v1/files/{finished['result_files'][0]}/content", headers={"accept": "text/csv"}
    )
    assert file.text.splitlines()[1] == "1,,,,"


async def start(world: World, nodes: list[ScriptedNode]) -> int:
    """Open the first generation, of which nothing is measured yet; its number."""
    await world.tick()
    directives = [await node.hear() for node in nodes]
    await say_all(nodes, NodePhase.RUNNING, directives[0].number)
    return directives[0].number
