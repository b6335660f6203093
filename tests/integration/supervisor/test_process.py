"""The supervisor as a program, also in Azure ML: killed, restarted, started twice, ended."""

import asyncio
import os
import resource
import signal
import sys
import time
from asyncio.subprocess import Process
from dataclasses import replace
from functools import partial

import pytest

from tests.azurite import Azurite
from tests.nodes.cable import laid_to
from tests.nodes.scripted_service import ScriptedNode
from tests.nodes.supervised import ROOT, Scene, node_config
from trainer.contract import PROTOCOL, NodePhase
from trainer.supervisor.control.launch import find_marked_processes
from trainer.supervisor.machine.liveness import is_alive
from trainer.supervisor.main import ALREADY_RUNNING, BAD_CONFIGURATION


async def test_a_killed_supervisor_leaves_a_trainer_that_the_next_one_kills(scene: Scene) -> None:
    node = scene.service.add("one")
    first = await _start(scene, node, "orphan")
    await scene.generation(node)
    await scene.trains(node)
    work_folder = scene.folder / "one"
    await scene.until(lambda: len(find_marked_processes(str(work_folder))) == 2)
    first.send_signal(signal.SIGKILL)
    await first.wait()
    assert len(find_marked_processes(str(work_folder))) == 2
    second = await _start(scene, node, "train")
    await scene.until(lambda: len(node.registrations) == 2)
    assert find_marked_processes(str(work_folder)) == []
    await scene.until(lambda: node.has_reported(NodePhase.STOPPED, 1))

    assert "restarted" in node.last_heartbeat.error
    assert (node.last_heartbeat.epoch, scene.node("one").directive) == (2, 1)
    await _terminate(second)
    service_log = scene.service.happened
    assert "one failed 1" not in service_log
    assert "one running 1" not in service_log[service_log.index("one stopped 1") :]


async def test_a_terminated_supervisor_saves_commits_and_may_be_started_again(scene: Scene) -> None:
    node = scene.service.add("one")
    first = await _start(scene, node, "train")
    await scene.generation(node)
    await scene.trains(node)
    await _terminate(first)
    newest, heartbeat = scene.job.head().newest, node.last_heartbeat
    second = await _start(scene, node, "train")
    await scene.until(lambda: len(node.registrations) == 2)
    await scene.generation(node, number=2)
    await scene.until(
        lambda: node.has_reported(NodePhase.RUNNING, 2) and node.last_heartbeat.step > 10
    )
    await _terminate(second)

    assert newest is not None
    assert newest.step == 10
    assert (heartbeat.phase, heartbeat.eviction is not None) == (NodePhase.STOPPED, True)


async def test_a_supervisor_that_cannot_register_shows_that_it_lives_and_obeys_a_signal(
    scene: Scene,
) -> None:
    node = scene.service.add("one")
    scene.service.down = True
    process = await _start(scene, node, "train")
    await scene.until(lambda: is_alive(scene.folder / "one", time.time()))
    await scene.until(lambda: scene.service.knocks > 1)
    await _terminate(process)


async def test_two_supervisors_never_share_a_work_folder(scene: Scene) -> None:
    node = scene.service.add("one")
    first = await _start(scene, node, "train")
    await scene.until(lambda: node.heartbeats)
    second = await _start(scene, node, "train")

    assert await second.wait() == ALREADY_RUNNING
    await _terminate(first)


async def test_a_configuration_of_another_protocol_is_refused(scene: Scene) -> None:
    node = scene.service.add("one")
    process = await _start(scene, node, "train", protocol=99)

    assert await process.wait() == BAD_CONFIGURATION
    assert node.registrations == []


@pytest.mark.parametrize("fenced", [False, True])
async def test_what_lay_whole_when_the_supervisor_was_killed_is_committed_unless_head_was_taken(
    azurite: Azurite, scene: Scene, fenced: bool
) -> None:
    node = scene.service.add("one")
    async with laid_to(azurite.port) as proxy:
        scene.service.grants = replace(scene.job.grants, job=proxy.through(scene.job.grants.job))
        first = await _start(scene, node, "saves")
        await scene.generation(node)
        await scene.until(lambda: scene.job.head().newest)
        proxy.cut()  # what is saved from now on lies on the disk
        outbox = scene.folder / "one" / "gen-0001" / "outbox"
        await scene.until(lambda: len(list(outbox.glob("*/rank-00000.json"))) >= 2)
        first.send_signal(signal.SIGKILL)
        await first.wait()
        before = scene.job.head()
        if fenced:
            before = before.fenced(2)
            scene.job.write_head(before)
        proxy.mend()
        second = await _start(scene, node, "train")
        await scene.until(lambda: node.has_reported(NodePhase.STOPPED, 1))
        after = scene.job.head()
        await _terminate(second)

    if fenced:
        assert after == before
        return
    assert before.newest is not None
    assert after.newest is not None
    assert after.newest.step > before.newest.step
    assert (node.last_heartbeat.epoch, after.newest.generation) == (2, 1)
    assert "one failed 1" not in scene.service.happened
    steps = {m.step for h in node.heartbeats for m in h.metrics}
    assert steps >= set(range(1, after.newest.step + 1))  # what was measured, not told yet, as well
    assert [s.name for h in node.heartbeats for s in h.spans].count("load") == 1


async def test_a_disk_without_room_for_the_base_model_is_called_by_its_name(scene: Scene) -> None:
    node = scene.service.add("one")
    process = await _start(scene, node, "train", room=20_000)  # the base model has 35,000 bytes
    await scene.generation(node)
    await scene.until(lambda: node.has_reported(NodePhase.STOPPED, 1))

    assert "larger local disk" in node.last_heartbeat.error
    await _terminate(process)


async def _start(
    scene: Scene, node: ScriptedNode, mode: str, *, protocol: int = PROTOCOL, room: int = 0
) -> Process:
    config = scene.folder / f"{node.node_id}.json"
    config.write_text(replace(node_config(scene), protocol=protocol).to_json())
    work_folder = scene.folder / node.node_id
    with (scene.folder / "supervisor.log").open("ab") as log:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.nodes.standin_supervisor",
            str(config),
            f"{scene.service.url}/vms/{node.node_id}",
            str(work_folder),
            mode,
            str(scene.folder),
            cwd=ROOT,
            stderr=log,
            env={"PATH": os.defpath},
            preexec_fn=partial(_limit_files, room) if room else None,
        )


def _limit_files(size: int) -> None:
    """No file may grow beyond ``size``; the kernel says so as it does of a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


async def _terminate(process: Process) -> None:
    process.terminate()
    assert await process.wait() == 0


SECRET = "REKINDLE_NODE"
OF_AZURE = {
    "AZ_BATCH_NODE_ID": "one",
    "AZUREML_RUN_ID": "rk-1",
    "AZUREML_RUN_TOKEN": "secret",
    "MASTER_ADDR": "127.0.0.1",
    "NODE_RANK": "0",
    "RANK": "0",
    "WORLD_SIZE": "2",
}


async def start(scene: Scene, folder: str) -> Process:
    """Run it as Azure ML does: in a working directory of the job's, with all in the environment."""
    path = scene.folder / folder
    path.mkdir()
    with (path / "log").open("wb") as log:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.nodes.standin_supervisor", "train", str(scene.folder)),
            cwd=path,
            stderr=log,
            env={
                **OF_AZURE,
                SECRET: node_config(scene).to_json(),
                "PATH": os.defpath,
                "PYTHONPATH": str(ROOT),
                "REKINDLE_MEMORY_DIR": "memory",
            },
        )


async def test_a_job_that_is_cancelled_saves_and_one_that_starts_again_begins_anew(
    scene: Scene,
) -> None:
    node = scene.service.add("one")
    first = await start(scene, "first")
    await scene.generation(node)
    await scene.trains(node)
    ranks = find_marked_processes(str(scene.folder / "first" / "rekindle"))
    environment_names = {name for process in ranks for name in process.environ()}
    first.terminate()

    assert await first.wait() == 0
    assert environment_names
    assert not environment_names & {SECRET, *OF_AZURE}
    registration = node.registrations[0]
    assert (registration.vm_id, registration.name, registration.address) == (
        "one",
        "rk-1_0",
        "127.0.0.1",
    )
    assert node.has_reported(NodePhase.STOPPED, 1)
    assert (newest := scene.job.head().newest)
    assert newest.step == 10

    second = await start(scene, "second")
    await scene.until(lambda: len(node.boots) == 2)
    await scene.generation(node, number=2)
    await scene.until(lambda: node.has_reported(NodePhase.RUNNING, 2))
    second.terminate()
    assert await second.wait() == 0
