"""The time before the first step: trainers begin at once, and wait for what is still fetched."""

from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.azurite import Azurite
from tests.nodes.cable import Cable, laid_to
from tests.nodes.supervised import Scene
from trainer.contract import NodePhase
from trainer.supervisor.control.launch import find_marked_processes

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
    work = scene.folder / "one"
    await scene.until(lambda: find_marked_processes(str(work)))
    waited = not (work / "gen-0001" / "ready").exists()
    cable.mend()
    await scene.trains(node)

    assert waited
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
    await scene.until(lambda: node.has_said(NodePhase.STOPPED, 1))

    assert node.said.error.startswith("not started: no network interface of this machine has")
    assert node.registrations[0].network[0].startswith("fault=no network interface")
