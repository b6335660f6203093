"""How a supervisor tells of its trainer's errors, by what is to be done about them."""

from dataclasses import replace

from tests.nodes.supervised import ATTEMPT, QUICK, Scene
from trainer.contract import NodePhase, log_path


async def test_a_crash_is_reported_with_the_end_of_the_log(scene: Scene) -> None:
    node = await scene.run_one("crash")
    await scene.until(lambda: node.has_said(NodePhase.FAILED, 1))

    assert "the loss is not a number" in node.said.error
    assert "the loss is not a number" in scene.job.text(log_path(ATTEMPT, 0))


async def test_memory_that_ran_out_is_told_apart_from_other_errors(scene: Scene) -> None:
    scene.modes["one"] = "no memory"
    scene.job.processes_per_node = 2
    node = await scene.run_one()
    await scene.until(lambda: node.has_said(NodePhase.FAILED, 1))
    short = node.said
    scene.modes["one"] = "crash"
    await scene.generation(node, number=2)
    await scene.until(lambda: node.has_said(NodePhase.FAILED, 2))

    assert short.out_of_memory
    first, second, *_ = short.error.splitlines()
    assert first.startswith("memory ran out on rank 1 with micro-batch 2: CUDA out of memory.")
    assert second.startswith("ranks [0, 1] ended without a result")
    assert not node.said.out_of_memory


async def test_an_error_that_no_second_try_mends_is_told_in_its_own_words(scene: Scene) -> None:
    node = await scene.run_one("non_retryable")
    await scene.until(lambda: node.has_said(NodePhase.FAILED, 1))

    assert node.said.non_retryable
    assert node.said.error == "line 3 has no answer; mend it"


async def test_what_a_run_without_a_second_try_has_saved_is_committed_however_long_it_takes(
    scene: Scene,
) -> None:
    node = await scene.run_one("wrong", limits=replace(QUICK, uploads_after_kill=0.0))
    await scene.until(lambda: node.has_said(NodePhase.FAILED, 1))

    assert node.said.non_retryable
    assert [c.step for c in scene.job.head().checkpoints] == [10]
