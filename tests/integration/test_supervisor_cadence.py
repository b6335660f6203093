"""What the service says of evictions reaches the trainer, and what comes of it the service."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.azurite import Azurite
from tests.scripted_service import ScriptedNode
from tests.supervised import Scene, set_scene
from trainer.contract import Cadence, DirectiveKind, NodePhase, Saving
from trainer.rundir import RunDir, write_whole

SELDOM = Cadence(evictions_per_hour=0.1, answered=0.95, seconds_per_block=0.001)
OFTEN = replace(SELDOM, evictions_per_hour=0.4)
SAYS = Saving(every=420.0)


@pytest.fixture
async def scene(azurite: Azurite, tmp_path: Path) -> AsyncIterator[Scene]:
    """A service and a job; no supervisor yet."""
    async with set_scene(azurite, tmp_path) as made:
        yield made


async def training(scene: Scene) -> tuple[ScriptedNode, RunDir]:
    """A node that trains, whose trainer has said how often it saves."""
    node = scene.service.add("one")
    work = scene.start(node)
    await scene.generation(node)
    await scene.trains(node)
    folder = RunDir(work / "gen-0001")
    write_whole(folder.saving, SAYS.to_json())
    return node, folder


def heard(folder: RunDir) -> Cadence | None:
    """What lies there for rank 0."""
    return Cadence.from_json(folder.cadence.read_bytes()) if folder.cadence.exists() else None


async def test_what_is_told_lies_before_rank_0_of_this_run_and_of_the_next(scene: Scene) -> None:
    scene.service.cadence = SELDOM
    node, first = await training(scene)
    await scene.until(lambda: heard(first) is not None)
    at_first, scene.service.cadence = heard(first), OFTEN
    await scene.until(lambda: heard(first) != at_first)
    then = heard(first)
    await scene.until(lambda: node.said.saving == SAYS)
    await scene.service.direct(node, DirectiveKind.CHECKPOINT_AND_STOP, number=1)
    await scene.until(lambda: node.has_said(NodePhase.STOPPED, 1))
    await scene.generation(node, number=2)
    second = RunDir(first.root.with_name("gen-0002"))
    await scene.until(lambda: heard(second) is not None)

    assert (at_first, then) == (SELDOM, OFTEN)
    assert heard(second) == OFTEN


async def test_a_service_that_tells_nothing_is_not_told_either_nor_one_that_took_its_place(
    scene: Scene,
) -> None:
    node, folder = await training(scene)
    await scene.until(lambda: len(node.heartbeats) > 3)
    silent = [beat.saving for beat in node.heartbeats]
    scene.service.cadence = SELDOM
    await scene.until(lambda: node.said.saving == SAYS)
    scene.service.cadence = None
    node.refusals.append((400, "invalid_value"))  # an older release refuses what it does not know

    await scene.until(lambda: node.said.saving is None)
    assert set(silent) == {None}
    assert heard(folder) == SELDOM
