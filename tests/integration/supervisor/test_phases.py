"""Starts, and evictions in every phase of a node's work: from booting to finishing."""

from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.azurite import Azurite
from tests.nodes.cable import Cable, laid_to
from tests.nodes.scripted_service import ScriptedNode
from tests.nodes.supervised import Scene
from trainer.contract import DirectiveKind, NodePhase
from trainer.supervisor.control.launch import find_marked_processes

_STOP = DirectiveKind.CHECKPOINT_AND_STOP


async def test_while_it_boots_the_machine_is_let_go_as_soon_as_it_has_joined(scene: Scene) -> None:
    node = scene.service.add("one")
    node.event = "event-1"
    scene.service.not_seen_yet = 2
    scene.start(node)
    await scene.until(lambda: node.acknowledged)

    assert node.last_heartbeat.phase is NodePhase.READY
    assert node.last_heartbeat.eviction is not None


async def test_while_it_loads_nothing_is_waited_for(azurite: Azurite, scene: Scene) -> None:
    async with laid_to(azurite.port) as proxy:
        slow_urls = {p: proxy.through(url) for p, url in scene.job.grants.inputs.items()}
        scene.service.grants = replace(scene.job.grants, inputs=slow_urls)
        proxy.cut()
        node = scene.service.add("one")
        work_folder = scene.start(node)
        await scene.generation(node)
        await scene.until((work_folder / "gen-0001" / "generation.json").exists)
        node.event, node.notice = "event-1", 30.0
        await scene.until(lambda: node.acknowledged, seconds=10.0)

    assert node.has_reported(NodePhase.STOPPED, 1)
    assert node.last_heartbeat.error == ""
    assert scene.job.head().checkpoints == ()
    assert find_marked_processes(str(work_folder)) == []


async def test_while_it_saves_the_save_is_finished_and_committed(scene: Scene) -> None:
    node = await scene.run_one("slow")  # to save takes a second
    work_folder = scene.folder / "one"
    await scene.trains(node)
    await scene.service.direct(node, _STOP, number=1)
    await scene.until((work_folder / "gen-0001" / "stop").exists)
    node.event = "event-1"
    await scene.until(lambda: node.acknowledged)

    assert scene.job.newest().step == 10
    assert node.has_reported(NodePhase.STOPPED, 1)


async def test_in_the_last_step_the_model_is_committed_and_the_job_has_finished(
    scene: Scene,
) -> None:
    node = await scene.run_one("finish")
    work_folder = scene.folder / "one"
    await scene.until(lambda: list(work_folder.glob("gen-0001/results/*")))
    node.event = "event-1"
    await scene.until(lambda: node.acknowledged)

    assert scene.job.head().model is not None
    assert node.has_reported(NodePhase.FINISHED, 1)


async def test_twice_in_one_epoch_each_time_it_goes_on_where_it_was(scene: Scene) -> None:
    for number in (1, 2):
        node = scene.service.add(f"node-{number}")  # a fresh machine each time
        scene.start(node)
        await scene.generation(node, number=number)
        await _steps(scene, node, beyond=(number - 1) * 10)
        node.event = f"event-{number}"
        await _let_go(scene, node)

    assert [(c.generation, c.step) for c in scene.job.head().checkpoints] == [(1, 10), (2, 20)]


@pytest.mark.parametrize(
    ("size", "notice", "kind", "message"),
    [
        (250_000, 8.0, "stop", "the step is finished first"),
        (2_000_000, 4.0, "periodic", "it would not be whole"),
    ],
    ids=["fits", "too large"],
)
async def test_a_save_that_fits_is_made_and_else_the_machine_is_let_go_early(
    azurite: Azurite, scene: Scene, size: int, notice: float, kind: str, message: str
) -> None:
    async with laid_to(azurite.port) as proxy:
        proxy.rate = 1_000_000  # bytes a second
        job = proxy.through(scene.job.grants.job)
        scene.service.grants = replace(scene.job.grants, job=job)
        node = await scene.run_one(f"once:{size}")
        await scene.until(lambda: scene.job.head().newest, seconds=30.0)
        node.event, node.notice = "event-1", notice
        await scene.until(lambda: node.acknowledged)

    newest = scene.job.newest()
    assert (newest.kind, newest.step > 10) == (kind, kind == "stop")
    messages = {t.message for h in node.heartbeats for t in h.troubles if t.kind == "notice"}
    assert len(messages) == 1
    assert message in messages.pop()
    assert node.has_reported(NodePhase.STOPPED, 1)


async def _steps(scene: Scene, node: ScriptedNode, *, beyond: int) -> None:
    await scene.until(lambda: node.heartbeats and node.last_heartbeat.step > beyond)


async def _let_go(scene: Scene, node: ScriptedNode) -> None:
    await scene.until(lambda: node.acknowledged)


BOOT = ("start_supervisor", "join", "wait_for_nodes", "fetch_inputs")


@pytest.fixture
async def cable(azurite: Azurite, scene: Scene) -> AsyncIterator[Cable]:
    """Between the nodes and the job's inputs; cut."""
    async with laid_to(azurite.port) as laid:
        inputs = {path: laid.through(url) for path, url in scene.job.grants.inputs.items()}
        scene.service.grants = replace(scene.job.grants, inputs=inputs)
        laid.cut()
        yield laid


async def test_a_trainer_is_started_while_its_inputs_are_still_fetched(
    scene: Scene, cable: Cable
) -> None:
    node = await scene.run_one()
    work_folder = scene.folder / "one"
    await scene.until(lambda: find_marked_processes(str(work_folder)))
    is_waiting = not (work_folder / "gen-0001" / "ready").exists()
    cable.mend()
    await scene.trains(node)

    assert is_waiting
    assert [s.name for h in node.heartbeats for s in h.spans].count("wait_for_nodes") >= 1


async def test_from_its_start_to_the_trainers_a_node_accounts_for_all_its_time(
    scene: Scene,
) -> None:
    node = await scene.run_one()
    await scene.trains(node)
    spans = {s.name: s for h in node.heartbeats for s in h.spans}
    spans |= {s.name: s for s in node.registrations[0].spans}
    path = [spans[name] for name in BOOT]

    gaps = [b.started_at - a.ended_at for a, b in pairwise(path)]
    assert all(-0.05 < gap < 0.5 for gap in gaps), gaps


async def test_a_node_whose_address_no_interface_has_says_so_and_is_not_blamed(
    scene: Scene,
) -> None:
    node = scene.service.add("one", address="192.0.2.1")
    scene.start(node)
    await scene.generation(node)
    await scene.until(lambda: node.has_reported(NodePhase.STOPPED, 1))

    assert node.last_heartbeat.error.startswith(
        "not started: no network interface of this machine has"
    )
    assert node.registrations[0].network[0].startswith("fault=no network interface")
