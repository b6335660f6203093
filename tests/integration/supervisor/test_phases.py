"""Evictions in every phase of a node's work: booting, loading, training, saving, finishing."""

from dataclasses import replace

from tests.azurite import Azurite
from tests.nodes.cable import laid_to
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

    assert node.said.phase is NodePhase.READY
    assert node.said.eviction is not None


async def test_while_it_loads_nothing_is_waited_for(azurite: Azurite, scene: Scene) -> None:
    async with laid_to(azurite.port) as cable:
        slow = {p: cable.through(url) for p, url in scene.job.grants.inputs.items()}
        scene.service.grants = replace(scene.job.grants, inputs=slow)
        cable.cut()
        node = scene.service.add("one")
        work = scene.start(node)
        await scene.generation(node)
        await scene.until((work / "gen-0001" / "generation.json").exists)
        node.event, node.notice = "event-1", 30.0
        await scene.until(lambda: node.acknowledged, seconds=10.0)

    assert node.has_said(NodePhase.STOPPED, 1)
    assert node.said.error == ""
    assert scene.job.head().checkpoints == ()
    assert find_marked_processes(str(work)) == []


async def test_while_it_saves_the_save_is_finished_and_committed(scene: Scene) -> None:
    node = await scene.run_one("slow")  # to save takes a second
    work = scene.folder / "one"
    await scene.trains(node)
    await scene.service.direct(node, _STOP, number=1)
    await scene.until((work / "gen-0001" / "stop").exists)
    node.event = "event-1"
    await scene.until(lambda: node.acknowledged)

    assert scene.job.newest().step == 10
    assert node.has_said(NodePhase.STOPPED, 1)


async def test_in_the_last_step_the_model_is_committed_and_the_job_has_finished(
    scene: Scene,
) -> None:
    node = await scene.run_one("finish")
    work = scene.folder / "one"
    await scene.until(lambda: list(work.glob("gen-0001/results/*")))
    node.event = "event-1"
    await scene.until(lambda: node.acknowledged)

    assert scene.job.head().model is not None
    assert node.has_said(NodePhase.FINISHED, 1)


async def test_twice_in_one_epoch_each_time_it_goes_on_where_it_was(scene: Scene) -> None:
    for number in (1, 2):
        node = scene.service.add(f"node-{number}")  # a fresh machine each time
        scene.start(node)
        await scene.generation(node, number=number)
        await _steps(scene, node, beyond=(number - 1) * 10)
        node.event = f"event-{number}"
        await _let_go(scene, node)

    assert [(c.generation, c.step) for c in scene.job.head().checkpoints] == [(1, 10), (2, 20)]


async def test_what_cannot_fit_is_not_begun_and_the_machine_is_let_go_early(
    azurite: Azurite, scene: Scene
) -> None:
    async with laid_to(azurite.port) as cable:
        cable.rate = 1_000_000  # bytes a second
        job = cable.through(scene.job.grants.job)
        scene.service.grants = replace(scene.job.grants, job=job)
        node = await scene.run_one("once:2000000")
        await scene.until(lambda: scene.job.head().newest, seconds=30.0)
        node.event, node.notice = "event-1", 4.0
        await scene.until(lambda: node.acknowledged)

    newest = scene.job.newest()
    assert (newest.kind, newest.step) == ("periodic", 10)
    told = {t.message for h in node.heartbeats for t in h.troubles if t.kind == "notice"}
    assert len(told) == 1
    assert "it would not be whole" in told.pop()
    assert node.has_said(NodePhase.STOPPED, 1)


async def _steps(scene: Scene, node: ScriptedNode, *, beyond: int) -> None:
    await scene.until(lambda: node.heartbeats and node.said.step > beyond)


async def _let_go(scene: Scene, node: ScriptedNode) -> None:
    await scene.until(lambda: node.acknowledged)
