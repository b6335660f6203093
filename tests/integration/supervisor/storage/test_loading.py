"""A run whose ranks read another world's checkpoint: what they ask for comes while they load."""

from collections.abc import Mapping

from tests.nodes import partitioned
from tests.nodes.supervised import Scene
from trainer.contract import Committed, NodePhase

SIZES = {"layer.weight": 30_000, "layer.bias": 77}
BLOCK = 16 * 2**10


async def test_all_that_is_asked_for_comes_and_is_let_go_once_training_has_begun(
    scene: Scene,
) -> None:
    saved(scene)
    node = await scene.run_one("loads")
    await scene.until(lambda: scene.progress("one") > 10)

    await scene.until(lambda: not scene.checkpoint_files("one"))
    assert node.said.phase is NodePhase.RUNNING


async def test_a_trainer_that_ends_and_never_asked_has_failed(scene: Scene) -> None:
    saved(scene)
    node = await scene.run_one("crash")
    await scene.until(lambda: node.has_said(NodePhase.FAILED, 1))

    assert "the loss is not a number" in node.said.error


def saved(scene: Scene, flipped: Mapping[str, int] | None = None) -> Committed:
    """Two ranks' checkpoint, in Blob and in HEAD."""
    files = partitioned.files_of(partitioned.flat, SIZES, 2)
    return partitioned.commit_newest(scene.job, files, flipped, world=2, block_size=BLOCK)
