"""A notice over a slow link: what fits is saved, what cannot fit falls back, as was predicted."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.azurite import Azurite
from tests.nodes.cable import laid_to
from tests.nodes.scripted_service import ScriptedNode
from tests.nodes.supervised import QUICK, Scene, set_scene
from trainer.contract import NodePhase, Trouble

RATE = 1_000_000  # bytes a second


@pytest.fixture
async def scene(azurite: Azurite, tmp_path: Path) -> AsyncIterator[Scene]:
    """Yield a service and a job whose container is behind a slow link; no supervisor runs yet."""
    async with set_scene(azurite, tmp_path) as made, laid_to(azurite.port) as cable:
        cable.rate = RATE
        job = cable.through(made.job.grants.job)
        made.service.grants = replace(made.job.grants, job=job)
        yield made


async def _noticed(scene: Scene, size: int, seconds: float) -> ScriptedNode:
    """Return a machine that committed one save of this size and then got an eviction notice."""
    node = await scene.run_one(f"once:{size}")
    await scene.until(lambda: scene.job.head().newest, seconds=30.0)
    node.event, node.notice = "event-1", seconds
    await scene.until(lambda: node.acknowledged)
    return node


def _records(scene: Scene) -> list[str]:
    return [name for name in scene.job.names("checkpoints/") if name.endswith(".json")]


def _told(node: ScriptedNode) -> Trouble:
    [said] = {t for h in node.heartbeats for t in h.troubles if t.kind == "notice"}
    return said


async def test_what_fits_is_saved_before_the_machine_goes(scene: Scene) -> None:
    node = await _noticed(scene, RATE // 4, seconds=8.0)

    newest = scene.job.newest()
    assert (newest.kind, newest.step > 10) == ("stop", True)
    assert "the step is finished first" in _told(node).message


async def test_what_cannot_fit_is_not_begun_and_the_machine_is_let_go_early(scene: Scene) -> None:
    node = await _noticed(scene, 2 * RATE, seconds=4.0)

    newest = scene.job.newest()
    assert (newest.kind, newest.step) == ("periodic", 10)
    assert "it would not be whole" in _told(node).message
    assert node.has_said(NodePhase.STOPPED, 1)


async def test_a_notice_while_the_model_is_on_its_way_lets_it_arrive(scene: Scene) -> None:
    node = await scene.run_one(f"finish:{RATE}", limits=replace(QUICK, uploads_after_kill=0.5))
    await scene.until(lambda: _records(scene), seconds=30.0)  # the last checkpoint is through
    node.event, node.notice = "event-1", 4.0
    await scene.until(lambda: node.acknowledged)

    assert scene.job.head().model is not None
    assert node.has_said(NodePhase.FINISHED, 1)
